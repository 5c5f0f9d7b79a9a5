-- logring: reads the key of log.lua: a chunk, or a ring of pages with a chunk each. logpages.lua
-- changes a ring.
--
-- Ring    the newest chunk, behind what is said of the pages; most significant bytes first:
--           1 byte   255, with which no chunk begins until the year 3084
--           4 bytes  slot of the oldest page
--           4 bytes  pages
--           4 bytes  slots
--           1 byte   number of the oldest page in its block
--           1 byte   where the entries begin that still count, in the chunk of that page
--           6 bytes  ms of the oldest record that counts
--           7 bytes  units before it
--           7 bytes  units up to and with the first page of that block
--           1 byte   length of the newest chunk
--           255      the newest chunk
--           slot...  256 bytes: length of a chunk; the chunk
--         Pages lie in consecutive slots; slot 0 follows the last one. 32 pages are a
--         block. In all pages of a block but its first, units are counted from its
--         first page on: to give back units changes one block and one page of each
--         later one. A page of which all is given back has one record of no units.
--
-- Chunks are numbered from the oldest page, 0, to the newest chunk, whose number is l.pages.
--
-- room() -> own
--         what c.own has to be before the first load, with all its fields at once
-- load(c)
--         Reads the newest chunk, and what the ring says of the oldest page.
-- locate(c, t, k) -> at, before, index, i
--         finds the oldest record that is at t or later and has a running total above k: its time,
--         the units before it, its chunk, and where the entries from there on begin. nil: there
--         is no such record.
-- search(c, t, k) -> index
--         the first chunk behind the oldest one with such a record. There is one: the newest.
-- begin(c, index) -> at, before, i, chunk, last, total
--         the time of the oldest record of a chunk, the units before it, where its entries begin,
--         the chunk, its newest time and its running total
-- chunk_of(c, index) -> chunk
-- base(c, index) -> units, from which on the chunk counts
-- place(l, index) -> where the page lies
-- put_alone(c, chunk, expires)
--         Writes the only chunk.
--
-- c.own holds
--   log   nil if there is no key; else the newest chunk and what the ring says:
--           text      of the key, as far as it was read; tail, of the newest chunk
--           at, total, units, entries, span, inside, window, till
--                     of that: what read of logchunk.lua returns
--           slot, pages, slots, nth, skip, oldest, before, base
--                     of the ring, in the order of its bytes; pages is 0 for a single chunk
--   room  the table that log is, to be used again: see room()
local chunks = module('logchunk')
local read_chunk, read_varint, total_of = chunks.read, chunks.read_varint, chunks.total_of
local call, byte, sub, floor, min = redis.call, string.byte, string.sub, math.floor, math.min
local unpack = struct.unpack

local reach = '2047' -- up to where a key is read at first: more than the longest single chunk

local function room()
  return {
    log = nil, oldest = {},
    room = {
      text = '', tail = '', at = 0, total = 0, units = 0, entries = 0, span = 0, inside = 0, window = 0, till = 0,
      slot = 0, pages = 0, slots = 0, nth = 0, skip = 0, oldest = 0, before = 0, base = 0,
    },
  }
end

-- A single chunk is a ring without pages: what a ring says of its oldest page is computed.
local function load(c)
  c.own.log = nil
  local text = call('GETRANGE', c.key, '0', reach)
  if text == '' then return end
  local kind = byte(text)
  if #text < 18 or kind % 128 > 31 and (kind < 255 or #text < log_slots) then error('WRONGTYPE the key holds no log', 0) end
  local l = c.own.room
  c.own.log, l.text = l, text
  if kind == 255 then
    local _, length
    _, l.slot, l.pages, l.slots, l.nth, l.skip, l.oldest, l.before, l.base, length = unpack(log_front, text)
    l.tail = sub(text, log_front_size + 1, log_front_size + length)
  else
    l.pages, l.tail = 0, text
  end
  l.at, l.total, l.units, l.entries, l.span, l.inside, l.window, l.till = read_chunk(l.tail)
  if l.pages == 0 then
    l.skip, l.oldest, l.before = l.entries, l.at - l.span, l.total - l.units - l.inside
  end
end

local function place(l, i) return log_slots + (l.slot + i) % l.slots * log_page end

local function chunk_of(c, i)
  local l = c.own.log
  if i == l.pages then return l.tail end
  local from, text = place(l, i)
  if from + log_page <= #l.text then
    text = sub(l.text, from + 1, from + log_page)
  else
    text = call('GETRANGE', c.key, from, from + log_page - 1)
  end
  return sub(text, 2, 1 + byte(text))
end

local function base(c, i)
  local l = c.own.log
  local nth = i < l.pages and (l.nth + i) % log_block or 0
  if nth == 0 then return 0 end
  if l.nth + i < log_block then return l.base end
  return total_of(chunk_of(c, i - nth))
end

local function begin(c, i)
  local l, text = c.own.log, chunk_of(c, i)
  local at, total, units, from, span, inside = read_chunk(text)
  total = total + base(c, i)
  if i == 0 then return l.oldest, l.before, l.skip, text, at, total end
  return at - span, total - units - inside, from, text, at, total
end

-- Most often the chunk is near the oldest.
local function search(c, t, k)
  local low, high = 1, c.own.log.pages
  local middle = 1
  while low < high do
    local at, total = read_chunk(chunk_of(c, middle))
    if at >= t and total + base(c, middle) > k then high = middle else low = middle + 1 end
    middle = min(2 * middle, floor((low + high) / 2))
  end
  return low
end

local function locate(c, t, k)
  local l = c.own.log
  if not l or l.at < t or l.total <= k then return end
  if l.oldest >= t and l.before >= k then return l.oldest, l.before, 0, l.skip end
  local index = 0
  local at, before, i, text, last, total = begin(c, 0)
  if last < t or total <= k then
    index = search(c, t, k)
    at, before, i, text, last, total = begin(c, index)
    if total == before then -- all of the page is given back
      index = search(c, t, total)
      at, before, i, text = begin(c, index)
    end
  end
  local size = #text
  while i <= size do
    local gap, high = byte(text, i, i + 1) -- in most cases all of it: no call
    local after = i + 1
    if gap > 127 then
      if high < 128 then
        gap, after = gap - 128 + high * 128, i + 2
      else
        gap, after = read_varint(text, i)
      end
    end
    local n = gap % 2
    gap = (gap - n) / 2
    if n == 0 then n = 1 else n, after = read_varint(text, after) end
    if at >= t and before + n > k then break end
    at, before, i = at + gap, before + n, after
  end
  return at, before, index, i
end

-- Without a time at which the key expires, it does when it would have.
local function put_alone(c, text, expires)
  if expires then
    call('SET', c.key, text, 'PXAT', expires)
  elseif c.own.log.pages > 0 or #text < #c.own.log.tail then
    call('SET', c.key, text, 'KEEPTTL')
  else
    call('SETRANGE', c.key, '0', text)
  end
end

return {
  room = room, load = load, chunk_of = chunk_of, base = base, begin = begin, search = search, locate = locate,
  place = place, put_alone = put_alone,
}
