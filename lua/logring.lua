-- logring: reads and writes the key of log.lua: a chunk, or a ring of pages with a chunk each.
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
-- records(c, index) -> list, total
--         the records of a chunk that count, and its running total
-- put_alone(c, chunk, expires), put_newest(c, chunk), put_page(c, index, chunk)
--         Write the only chunk; the newest one, and what the ring says of its pages; a page.
-- put_ring(c, all, total, window, till, expires)
--         Writes a list of records as a new ring. total is the running total of the last one.
-- push(c, page, chunk, expires)
--         Adds a page, and writes the newest chunk behind it.
-- forget(c, index, at, before, i)
--         Takes the pages before a chunk out of the ring, which put_newest then writes: the
--         oldest record of the chunk is at a time, before units come before it, and its entries
--         begin at i.
-- lower(c, index, n)
--         Lowers the running totals of all chunks from one on by n.
--
-- c.own holds
--   log   nil if there is no key; else the newest chunk and what the ring says:
--           text      of the key, as far as it was read; tail, of the newest chunk
--           at, total, units, entries, span, inside, window, till
--                     of that: what read_chunk of logchunk.lua returns
--           slot, pages, slots, nth, skip, oldest, before, base
--                     of the ring, in the order of its bytes; pages is 0 if there is none
--   room  the table that log is, to be used again
local chunks = module('logchunk')
local entry, read_chunk, read_varint, write_records = chunks.entry, chunks.read, chunks.read_varint, chunks.write_records
local since, total_of = chunks.since, chunks.total_of
local call, byte, char, sub, floor, min = redis.call, string.byte, string.char, string.sub, math.floor, math.min
local pack, unpack = struct.pack, struct.unpack

local block = 32     -- pages
local reach = '2047' -- up to where a key is read at first: more than the longest single chunk

-- A single chunk is a ring without pages: what a ring says of its oldest page is computed.
local function load(c)
  c.own.log = nil
  local text = call('GETRANGE', c.key, '0', reach)
  if text == '' then return end
  local kind = byte(text)
  if #text < 18 or kind % 128 > 31 and (kind < 255 or #text < log_slots) then error('WRONGTYPE the key holds no log', 0) end
  local l = c.own.room
  if not l then
    l = {}
    c.own.room = l
  end
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

-- Returns where a page lies.
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
  local nth = i < l.pages and (l.nth + i) % block or 0
  if nth == 0 then return 0 end
  if l.nth + i < block then return l.base end
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

-- Returns a ring up to the end of the newest chunk.
local function ring(l, tail)
  return pack(log_front, 255, l.slot, l.pages, l.slots, l.nth, l.skip, l.oldest, l.before, l.base, #tail) .. tail
end

-- Returns text with zeros behind it, of a size.
local function padded(text, size) return text .. string.rep('\0', size - #text) end

-- Returns what is in the slot of a chunk.
local function slot(text) return char(#text) .. text end

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

local function put_newest(c, tail)
  c.own.log.text = ''
  call('SETRANGE', c.key, '0', ring(c.own.log, tail))
end

local function put_page(c, i, text)
  c.own.log.text = ''
  call('SETRANGE', c.key, place(c.own.log, i), slot(text))
end

local function forget(c, first, at, before, i)
  local l = c.own.log
  l.skip, l.oldest, l.before = i, at, before
  if first == 0 then return end
  local nth = (l.nth + first) % block
  if nth == 0 or l.nth + first >= block then
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
  all[1] = ring(l, tail)
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
  local nth = (l.nth + l.pages) % block
  if nth > 0 then
    local total = l.base
    if l.nth + l.pages >= block then total = total_of(chunk_of(c, l.pages - nth)) end
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
  call('SET', c.key, ring(l, tail) .. padded('', 255 - #tail) .. table.concat(texts), 'PXAT', expires)
end

local function lower(c, first, n)
  local l = c.own.log
  local function less(i, n)
    local from = place(l, i) + 7
    local total = unpack('>I7', call('GETRANGE', c.key, from, from + 6))
    l.text = ''
    call('SETRANGE', c.key, from, pack('>I7', total - n))
  end
  local nth, i, here = (l.nth + first) % block, first, n
  if first == 0 then -- all pages of the oldest block
    here = n - min(l.base, n)
    l.base = l.base - n + here
  end
  if nth > 0 then
    i = min(first + block - nth, l.pages)
    if here > 0 then
      for k = first, i - 1 do less(k, here) end
    end
  end
  for k = i, l.pages - 1, block do less(k, n) end
  l.total = l.total - n
  l.tail = since(l.tail, n)
end

return {
  load = load, chunk_of = chunk_of, base = base, begin = begin, search = search, locate = locate, records = records,
  put_alone = put_alone, put_newest = put_newest, put_page = put_page, put_ring = put_ring,
  forget = forget, push = push, lower = lower,
}
