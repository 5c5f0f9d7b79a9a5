-- logpages: changes the pages of a ring: see logring.lua.
--
-- A list of records has {at, units} of each, oldest first.
--
-- put_newest(c, chunk)
--         Writes the newest chunk, and what the ring says of its pages.
-- put_page(c, index, chunk)
--         Writes a page.
-- put_ring(c, all, total, window, till, expires)
--         Writes a list of records as a new ring. total is the running total of the last one.
-- push(c, page, chunk, expires)
--         Adds a page, and writes the newest chunk behind it.
-- forget(c, index, at, before, i)
--         Takes the pages before a chunk out of the ring, which put_newest then writes: the
--         oldest record of the chunk is at a time, before units come before it, and its entries
--         begin at i.
-- records(c, index) -> list, total
--         the records of a chunk that count, and its running total
-- write_records(all, total, first, last, window, till) -> chunk
--         of the records from first to last of the list all; total is the running total of the
--         last one. The horizon is left out if the chunk is not the newest.
-- rest(chunk, at, before, i) -> chunk
--         without the records before the time at: before is the running total up to them, and
--         i where the entries of the others begin
-- since(chunk, units) -> chunk
--         with a running total that is lower by units
-- empty(at, total) -> chunk
--         of a page of which all is given back
-- lower(c, index, n)
--         Lowers the running totals of all chunks from one on by n.
local chunks, rings = module('logchunk'), module('logring')
local entry, read_chunk, read_varint = chunks.entry, chunks.read, chunks.read_varint
local write_chunk, total_of = chunks.write, chunks.total_of
local begin, chunk_of, place = rings.begin, rings.chunk_of, rings.place
local call, byte, char, sub, floor, min = redis.call, string.byte, string.char, string.sub, math.floor, math.min
local pack, unpack = struct.pack, struct.unpack

local function records(c, i)
  local at, _, from, text, _, total = begin(c, i)
  local last, _, units = read_chunk(text)
  local all = {}
  while from <= #text do
    local gap, n
    gap, from = read_varint(text, from)
    n = gap % 2
    gap = (gap - n) / 2
    if n == 0 then n = 1 else n, from = read_varint(text, from) end
    all[#all + 1] = {at = at, units = n}
    at = at + gap
  end
  all[#all + 1] = {at = last, units = units}
  return all, total
end

local function write_records(all, total, first, last, window, till)
  local entries, inside, final = {}, 0, all[last]
  for k = first, last - 1 do
    entries[#entries + 1] = entry(all[k + 1].at - all[k].at, all[k].units)
    inside = inside + all[k].units
  end
  return write_chunk(final.at, total, final.units, final.at - all[first].at, inside, table.concat(entries), window or 0, till or 0)
end

local function rest(text, at, before, i)
  local newest_at, total, units, _, _, _, window, till = read_chunk(text)
  return write_chunk(newest_at, total, units, newest_at - at, total - units - before, sub(text, i), window, till)
end

local function since(text, units) return sub(text, 1, 6) .. pack('>I7', total_of(text) - units) .. sub(text, 14) end

local function empty(at, total) return pack('>I6I7BI4', at, total, 0, 0) .. char(0) end

-- Returns a ring up to the end of the newest chunk.
local function front(l, tail)
  return pack(log_front, 255, l.slot, l.pages, l.slots, l.nth, l.skip, l.oldest, l.before, l.base, #tail) .. tail
end

-- Returns text with zeros behind it, of a size.
local function padded(text, size) return text .. string.rep('\0', size - #text) end

-- Returns what is in the slot of a chunk.
local function slot(text) return char(#text) .. text end

local function put_newest(c, tail)
  c.own.log.text = ''
  call('SETRANGE', c.key, '0', front(c.own.log, tail))
end

local function put_page(c, i, text)
  c.own.log.text = ''
  call('SETRANGE', c.key, place(c.own.log, i), slot(text))
end

local function forget(c, first, at, before, i)
  local l = c.own.log
  l.skip, l.oldest, l.before = i, at, before
  if first == 0 then return end
  local nth = (l.nth + first) % log_block
  if nth == 0 or l.nth + first >= log_block then
    l.base = total_of(chunk_of(c, first - nth)) -- which is in its slot still
  end
  l.slot, l.nth, l.pages = (l.slot + first) % l.slots, nth, l.pages - first
end

-- Writes the ring anew: its pages, one more, and the newest chunk. One slot of seventeen
-- stays free.
local function rebuild(c, text, tail, expires)
  local l = c.own.log
  local upper = min(l.pages, l.slots - l.slot) -- pages up to the last slot
  local from = log_slots + l.slot * log_page
  local all = {'', padded('', 255 - #tail), call('GETRANGE', c.key, from, from + upper * log_page - 1)}
  if upper < l.pages then all[4] = call('GETRANGE', c.key, log_slots, log_slots + (l.pages - upper) * log_page - 1) end
  all[#all + 1] = padded(slot(text), log_page)
  l.slot, l.pages = 0, l.pages + 1
  l.slots = l.pages + floor(l.pages / 16)
  all[1] = front(l, tail)
  all[#all + 1] = padded('', (l.slots - l.pages) * log_page)
  if expires then
    call('SET', c.key, table.concat(all), 'PXAT', expires)
  else
    call('SET', c.key, table.concat(all), 'KEEPTTL')
  end
end

-- Writes that need memory come first, and of these one that changes nothing: without memory
-- all stays as it is.
local function push(c, text, tail, expires)
  local l = c.own.log
  local nth = (l.nth + l.pages) % log_block
  if nth > 0 then
    local total = l.base
    if l.nth + l.pages >= log_block then total = total_of(chunk_of(c, l.pages - nth)) end
    text = since(text, total)
  end
  if l.pages >= l.slots or l.slots > 16 and l.pages < l.slots / 4 then
    rebuild(c, text, tail, expires)
    return
  end
  put_page(c, l.pages, text)
  l.pages = l.pages + 1
  put_newest(c, tail)
  if expires then call('PEXPIREAT', c.key, expires) end
end

local function put_ring(c, all, total, window, till, expires)
  local texts, first, size, before = {}, 1, 0, total
  for k = 1, #all do before = before - all[k].units end
  local l, inside = {slot = 0, nth = 0, oldest = all[1].at, before = before}, 0
  for k = 1, #all - 1 do
    before, inside = before + all[k].units, inside + all[k].units
    size = size + #entry(all[k + 1].at - all[k].at, all[k].units)
    local span, is_last = all[k + 1].at - all[first].at, k == #all - 1 and #texts == 0
    if size > log_fill or span >= log_widest or inside >= log_widest or is_last then
      local text = write_records(all, before, first, k)
      l.base = l.base or before
      if #texts > 0 then text = since(text, l.base) end
      texts[#texts + 1] = padded(slot(text), log_page)
      first, size, inside = k + 1, 0, 0
    end
  end
  local tail = write_records(all, total, first, #all, window, till)
  local _, _, _, skip = read_chunk(sub(texts[1], 2, 1 + byte(texts[1])))
  l.skip, l.pages, l.slots = skip, #texts, #texts
  call('SET', c.key, front(l, tail) .. padded('', 255 - #tail) .. table.concat(texts), 'PXAT', expires)
end

local function lower(c, first, n)
  local l = c.own.log
  local function less(i, n)
    local from = place(l, i) + 7
    local total = unpack('>I7', call('GETRANGE', c.key, from, from + 6))
    l.text = ''
    call('SETRANGE', c.key, from, pack('>I7', total - n))
  end
  local nth, i, here = (l.nth + first) % log_block, first, n
  if first == 0 then -- all pages of the oldest block
    here = n - min(l.base, n)
    l.base = l.base - n + here
  end
  if nth > 0 then
    i = min(first + log_block - nth, l.pages)
    if here > 0 then
      for k = first, i - 1 do less(k, here) end
    end
  end
  for k = i, l.pages - 1, log_block do less(k, n) end
  l.total = l.total - n
  l.tail = since(l.tail, n)
end

return {
  put_newest = put_newest, put_page = put_page, put_ring = put_ring, push = push, forget = forget, lower = lower,
  records = records, write_records = write_records, rest = rest, since = since, empty = empty,
}
