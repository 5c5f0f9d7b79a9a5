-- logchunk: chunks, in which log.lua keeps its records. Nothing here calls Redis.
--
-- Chunk   records, oldest first; a record is all units of one millisecond. Most
--         significant bytes first:
--           6 bytes  ms of the newest record; and 2^47 if there is an extension
--           7 bytes  units up to and with this chunk, since the key was new
--           1 byte   units of the newest record; 0 if a varint of them follows the numbers
--           4 bytes  the window of the horizon (see horizon.lua), unless there is an extension
--         and, unless there is but one record and no extension,
--           4 bytes  ms from the oldest record to the newest
--           4 bytes  units of all records but the newest
--           entry... for each of these: ms to the next one; its units
--         The extension is in front of the entries, and has 6 bytes each for the window and
--         till of the horizon. It is there unless till is 0 and the window is below 2^32.
--         The horizon of the newest chunk counts.
--         An entry is one or two varints:
--           varint   ms × 2, + 1 if units follow
--           varint   units, which are left out if they are 1
--         A varint has 7 bits in a byte, the lowest first, and the top bit set in
--         every byte but the last.
--
-- read(chunk) -> at, total, units, i, span, inside, window, till
--         at, units     of the newest record
--         total         the running total
--         i             where the entries begin
--         span          ms from the oldest record to the newest
--         inside        units of all records but the newest
--         window, till  the horizon
-- write(at, total, units, span, inside, entries, window, till) -> chunk
-- total_of(chunk) -> total
-- entry(gap, units) -> text
--         of a record, which is gap ms older than the next one
-- read_varint(text, i) -> n, i
--         the varint at i, and the place behind it
local byte, char, floor = string.byte, string.char, math.floor
local pack, unpack = struct.pack, struct.unpack

local extended = 2 ^ 47
local lone, header = '>I6I7BI4', '>I6I7BI4I4I4' -- of one record, and of several

local function varint(n)
  local bytes = ''
  while n > 127 do
    bytes = bytes .. char(n % 128 + 128)
    n = floor(n / 128)
  end
  return bytes .. char(n)
end

-- Most varints are short, and to read three bytes takes hardly longer than to read one.
local function read_varint(text, i)
  local a, b, c = byte(text, i, i + 2)
  if a < 128 then return a, i + 1 end
  if b < 128 then return a - 128 + b * 128, i + 2 end
  local n, scale = a - 128 + (b - 128) * 128, 16384
  i = i + 2
  while c > 127 do
    n = n + (c - 128) * scale
    scale = scale * 128
    i = i + 1
    c = byte(text, i)
  end
  return n + c * scale, i + 1
end

local function entry(gap, units)
  if units > 1 then return varint(gap * 2 + 1) .. varint(units) end
  if gap < 64 then return char(gap * 2) end
  if gap < 8192 then return char(gap * 2 % 128 + 128, floor(gap / 64)) end
  return varint(gap * 2)
end

local function write_chunk(at, total, units, span, inside, entries, window, till)
  local first, more = units, ''
  if units > 255 then first, more = 0, varint(units) end
  if till > 0 or window >= log_widest then
    return pack(header, at + extended, total, first, 0, span, inside) .. more .. pack('>I6I6', window, till) .. entries
  end
  if entries == '' then return pack(lone, at, total, first, window) .. more end
  return pack(header, at, total, first, window, span, inside) .. more .. entries
end

local function read_chunk(text)
  local at, total, units, window, span, inside, i
  if #text > log_longest_lone then
    at, total, units, window, span, inside, i = unpack(header, text)
  else
    at, total, units, window, i = unpack(lone, text)
    span, inside = 0, 0
  end
  if units == 0 then units, i = read_varint(text, i) end
  if at < extended then return at, total, units, i, span, inside, window, 0 end
  local till
  window, till = unpack('>I6I6', text, i)
  return at - extended, total, units, i + 12, span, inside, window, till
end

local function total_of(text)
  local total = unpack('>I7', text, 7)
  return total
end

return {entry = entry, read = read_chunk, read_varint = read_varint, write = write_chunk, total_of = total_of}
