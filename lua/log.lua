-- log: the exact sliding-window log, packed. Twin of window/log.go.
--
-- Key     a string: one chunk, or a ring of pages with a chunk each. A chunk holds
--         records, oldest first; a record is all units of one millisecond. Most
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
--         A ring begins with the newest chunk. The others follow in pages:
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
-- Options none
--
-- The key never ceases to exist while it holds a unit: in a Cluster, a script cannot
-- write a key that it has deleted, if the slot of the key is being moved.
--
-- Since each chunk tells how many units came before, those of any window are the
-- difference of two chunks, of which the older is read from its start to the window's
-- edge. What has left the longest window is skipped, so that most often only the newest
-- chunk is read.
local log, horizon = {}, module('horizon')

local alone = 128     -- entries of the only chunk, as if all were as long as the next one
local fill = 208      -- bytes of entries in a chunk of a ring
local most = 2 ^ 53   -- units: above, they cannot be counted one by one
local widest = 2 ^ 32 -- ms, and units, of a chunk; and ms of a window without extension
local extended = 2 ^ 47

local page, block = 256, 32 -- bytes of a slot, and pages of a block
local front, front_size = '>BI4I4I4BBI6I7I7B', 36
local slots = front_size + 255 -- where slot 0 begins
local reach = '2047'           -- up to where a key is read at first: more than the longest single chunk

local call, byte, char, sub, floor = redis.call, string.byte, string.char, string.sub, math.floor
local pack, unpack = struct.pack, struct.unpack
local lone, header = '>I6I7BI4', '>I6I7BI4I4I4' -- of one record, and of several
local longest_lone = 18 + 8                     -- bytes, with the longest varint

-- Keys expire at a multiple of a quarter of the window, so that not each record has to
-- put that off. Returns when one does that is kept for a window after now.
local function expiry(now, window)
  local quarter = math.min(window, math.max(100, floor(window / 4)))
  return (floor(now / quarter) + 1) * quarter + window
end

local function varint(n)
  local bytes = ''
  while n > 127 do
    bytes = bytes .. char(n % 128 + 128)
    n = floor(n / 128)
  end
  return bytes .. char(n)
end

-- Returns the varint at position i, and the position after it. Most are short, and to
-- read three bytes takes hardly longer than to read one.
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

-- Returns a chunk of a newest record and the entries of others, of which the oldest is
-- span ms older, and which have inside units; with a horizon.
local function chunk(at, total, units, span, inside, entries, window, till)
  local byte, more = units, ''
  if units > 255 then byte, more = 0, varint(units) end
  if till > 0 or window >= widest then
    return pack(header, at + extended, total, byte, 0, span, inside) .. more .. pack('>I6I6', window, till) .. entries
  end
  if entries == '' then return pack(lone, at, total, byte, window) .. more end
  return pack(header, at, total, byte, window, span, inside) .. more .. entries
end

-- Returns a chunk's newest record, its running total, where the entries begin, how much
-- older the oldest record is, the units of the others, and the horizon.
local function newest(text)
  local at, total, units, window, span, inside, i
  if #text > longest_lone then
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

-- Reads the newest chunk, and what a ring says of the oldest one. Of a single chunk,
-- the same is computed: it is a ring without pages.
local function load(c)
  c.log = nil
  local text = call('GETRANGE', c.key, '0', reach)
  if text == '' then return end
  local kind = byte(text)
  if #text < 18 or kind % 128 > 31 and (kind < 255 or #text < slots) then error('WRONGTYPE the key holds no log', 0) end
  local l = c.room
  if not l then
    l = {}
    c.room = l
  end
  c.log, l.text = l, text
  if kind == 255 then
    local _, length
    _, l.slot, l.pages, l.slots, l.nth, l.skip, l.oldest, l.before, l.base, length = unpack(front, text)
    l.tail = sub(text, front_size + 1, front_size + length)
  else
    l.pages, l.tail = 0, text
  end
  l.at, l.total, l.units, l.entries, l.span, l.inside, l.window, l.till = newest(l.tail)
  if l.pages == 0 then
    l.skip, l.oldest, l.before = l.entries, l.at - l.span, l.total - l.units - l.inside
  end
end

-- Returns where a page lies.
local function place(l, i) return slots + (l.slot + i) % l.slots * page end

-- Returns chunk i: that of a page, or the newest one behind all pages.
local function chunk_of(c, i)
  local l = c.log
  if i == l.pages then return l.tail end
  local from, text = place(l, i)
  if from + page <= #l.text then
    text = sub(l.text, from + 1, from + page)
  else
    text = call('GETRANGE', c.key, from, from + page - 1)
  end
  return sub(text, 2, 1 + byte(text))
end

-- Returns from where chunk i counts its units.
local function base(c, i)
  local l = c.log
  local nth = i < l.pages and (l.nth + i) % block or 0
  if nth == 0 then return 0 end
  if l.nth + i < block then return l.base end
  local _, total = newest(chunk_of(c, i - nth))
  return total
end

-- Returns the time of the oldest record of chunk i, the units before it, where its
-- entries begin, the chunk, its newest time and its running total.
local function begin(c, i)
  local l, text = c.log, chunk_of(c, i)
  local at, total, units, from, span, inside = newest(text)
  total = total + base(c, i)
  if i == 0 then return l.oldest, l.before, l.skip, text, at, total end
  return at - span, total - units - inside, from, text, at, total
end

-- Finds the first chunk behind the oldest one with a record at t or later and a running
-- total above k. There is one: the newest. Most often it is near the oldest.
local function search(c, t, k)
  local low, high = 1, c.log.pages
  local middle = 1
  while low < high do
    local at, total = newest(chunk_of(c, middle))
    if at >= t and total + base(c, middle) > k then high = middle else low = middle + 1 end
    middle = math.min(2 * middle, floor((low + high) / 2))
  end
  return low
end

-- Finds the oldest record that is at t or later and has a running total above k. Returns its
-- time, the units before it, and the chunk from there on: its index, and where its entries
-- begin. Returns nil if no record qualifies.
local function locate(c, t, k)
  local l = c.log
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

-- The time until more than the k oldest units of policy j have left its window;
-- the whole window if there are no more.
local function leaves(c, now, j, k)
  local window = c.window[j]
  local count = c.limit[j] - c.remaining[j]
  local at = c.log and locate(c, now - window + 1, c.log.total - count + k)
  if not at then return window end
  return window - (now - math.min(at, now))
end

-- Returns the records of chunk i that count, oldest first, and its running total.
local function records(c, i)
  local at, _, from, text, _, total = begin(c, i)
  local last, _, units = newest(text)
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

-- Returns a chunk of the records from one up to another, with a horizon if it is the
-- newest.
local function pack_records(all, total, first, last, window, till)
  local entries, inside, final = {}, 0, all[last]
  for k = first, last - 1 do
    entries[#entries + 1] = entry(all[k + 1].at - all[k].at, all[k].units)
    inside = inside + all[k].units
  end
  return chunk(final.at, total, final.units, final.at - all[first].at, inside, table.concat(entries), window or 0, till or 0)
end

-- rest(text, at, before, i) -> chunk   without the records before the time at
--   before  the running total before that time
--   i       where the entries of the other records begin
local function rest(text, at, before, i)
  local newest_at, total, units, _, _, _, window, till = newest(text)
  return chunk(newest_at, total, units, newest_at - at, total - units - before, sub(text, i), window, till)
end

-- Returns a chunk with a running total that is lower by some units.
local function since(text, units) return sub(text, 1, 6) .. pack('>I7', unpack('>I7', text, 7) - units) .. sub(text, 14) end

-- Returns a ring up to the end of the newest chunk.
local function ring(l, tail)
  return pack(front, 255, l.slot, l.pages, l.slots, l.nth, l.skip, l.oldest, l.before, l.base, #tail) .. tail
end

-- Returns text with zeros behind it, of a size.
local function padded(text, size) return text .. string.rep('\0', size - #text) end

local function slot(text) return char(#text) .. text end

-- Writes the only chunk. Without a time at which the key expires, it does when it would
-- have.
local function put_alone(c, text, expires)
  if expires then
    call('SET', c.key, text, 'PXAT', expires)
  elseif c.log.pages > 0 or #text < #c.log.tail then
    call('SET', c.key, text, 'KEEPTTL')
  else
    call('SETRANGE', c.key, '0', text)
  end
end

-- Writes the newest chunk, and what the ring says of its pages.
local function put_newest(c, tail)
  c.log.text = ''
  call('SETRANGE', c.key, '0', ring(c.log, tail))
end

local function put_page(c, i, text)
  c.log.text = ''
  call('SETRANGE', c.key, place(c.log, i), slot(text))
end

-- Takes the pages before page first out of the ring. The oldest record of page first is at
-- a time, `before` units come before it, and its entries begin at i.
local function forget(c, first, at, before, i)
  local l = c.log
  l.skip, l.oldest, l.before = i, at, before
  if first == 0 then return end
  local nth = (l.nth + first) % block
  if nth == 0 or l.nth + first >= block then
    local _, total = newest(chunk_of(c, first - nth)) -- which is in its slot still
    l.base = total
  end
  l.slot, l.nth, l.pages = (l.slot + first) % l.slots, nth, l.pages - first
end

-- Writes the ring anew: its pages, one more, and the newest chunk. One slot of seventeen
-- stays free.
local function rebuild(c, text, tail, expires)
  local l = c.log
  local upper = math.min(l.pages, l.slots - l.slot) -- pages up to the last slot
  local from = slots + l.slot * page
  local all = {'', padded('', 255 - #tail), call('GETRANGE', c.key, from, from + upper * page - 1)}
  if upper < l.pages then all[4] = call('GETRANGE', c.key, slots, slots + (l.pages - upper) * page - 1) end
  all[#all + 1] = padded(slot(text), page)
  l.slot, l.pages = 0, l.pages + 1
  l.slots = l.pages + floor(l.pages / 16)
  all[1] = ring(l, tail)
  all[#all + 1] = padded('', (l.slots - l.pages) * page)
  if expires then
    call('SET', c.key, table.concat(all), 'PXAT', expires)
  else
    call('SET', c.key, table.concat(all), 'KEEPTTL')
  end
end

-- Adds a page, and writes the newest chunk behind it. Writes that need memory come first,
-- and of these one that changes nothing: without memory all stays as it is.
local function push(c, text, tail, expires)
  local l = c.log
  local nth = (l.nth + l.pages) % block
  if nth > 0 then
    local total = l.base
    if l.nth + l.pages >= block then
      local _
      _, total = newest(chunk_of(c, l.pages - nth))
    end
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

-- Writes records as a new ring. total is the running total of the last one.
local function put_ring(c, all, total, window, till, expires)
  local texts, first, size, before = {}, 1, 0, total
  for k = 1, #all do before = before - all[k].units end
  local l, inside = {slot = 0, nth = 0, oldest = all[1].at, before = before}, 0
  for k = 1, #all - 1 do
    before, inside = before + all[k].units, inside + all[k].units
    size = size + #entry(all[k + 1].at - all[k].at, all[k].units)
    local span, is_last = all[k + 1].at - all[first].at, k == #all - 1 and #texts == 0
    if size > fill or span >= widest or inside >= widest or is_last then
      local text = pack_records(all, before, first, k)
      l.base = l.base or before
      if #texts > 0 then text = since(text, l.base) end
      texts[#texts + 1] = padded(slot(text), page)
      first, size, inside = k + 1, 0, 0
    end
  end
  local tail = pack_records(all, total, first, #all, window, till)
  local _, _, _, skip = newest(sub(texts[1], 2, 1 + byte(texts[1])))
  l.skip, l.pages, l.slots = skip, #texts, #texts
  call('SET', c.key, ring(l, tail) .. padded('', 255 - #tail) .. table.concat(texts), 'PXAT', expires)
end

-- Lowers the running totals of all chunks from one on by n.
local function lower(c, first, n)
  local l = c.log
  local function less(i, n)
    local from = place(l, i) + 7
    local total = unpack('>I7', call('GETRANGE', c.key, from, from + 6))
    l.text = ''
    call('SETRANGE', c.key, from, pack('>I7', total - n))
  end
  local nth, i, here = (l.nth + first) % block, first, n
  if first == 0 then -- all pages of the oldest block
    here = n - math.min(l.base, n)
    l.base = l.base - n + here
  end
  if nth > 0 then
    i = math.min(first + block - nth, l.pages)
    if here > 0 then
      for k = first, i - 1 do less(k, here) end
    end
  end
  for k = i, l.pages - 1, block do less(k, n) end
  l.total = l.total - n
  l.tail = since(l.tail, n)
end

-- Moves everything that lies in the future to now.
local function pull_back(c, now)
  local l = c.log
  local total = l.total
  local _, before, i = locate(c, now, 0)
  local all = records(c, i)
  while all[1] and all[#all].at >= now do table.remove(all) end
  all[#all + 1] = {at = now, units = total - before}
  local tail = pack_records(all, total, 1, #all, l.window, l.till)
  if i == 0 then
    put_alone(c, tail)
  else
    l.pages = i
    put_newest(c, tail)
  end
  load(c)
end

-- Makes room for running totals: forgets what nobody looks at any more, and counts from
-- there.
local function rebase(c, now)
  local l = c.log
  local at, units, first, i = locate(c, now - c.keep + 1, 0)
  if first == l.pages then
    put_alone(c, since(rest(l.tail, at, units, i), units))
  else
    forget(c, first, at, units, i)
    lower(c, 0, units)
    l.before = 0
    put_newest(c, l.tail)
  end
  load(c)
end

-- Adds n units at now, and forgets what nobody looks at any more. Writes that need memory
-- come first: without it nothing at all is changed.
local function add(c, now, n)
  local l = c.log
  local window, till = horizon.after(c, now, l and l.window, l and l.till, function() return l.at end)
  local expires, renew = c.expires, true
  if till == 0 then
    expires = expiry(now, window)
    renew = not l or l.at > now or l.window ~= window or l.till > 0 or expires ~= expiry(l.at, window)
    expires = string.format('%d', expires)
  end
  local edge = now - c.keep
  if l and l.at > now then pull_back(c, now) end
  if c.log and c.log.at > edge and n > most - c.log.total then
    rebase(c, now)
    n = math.min(n, most - c.log.total)
    if n == 0 then return end
  end
  local at, before, first, i = locate(c, edge + 1, 0)
  if not at then
    call('SET', c.key, chunk(now, n, n, 0, 0, '', window, till), 'PXAT', expires)
    return
  end
  local total, is_tail, fits, next = l.total + n, first == l.pages, true, ''
  local from, span, inside = l.entries, l.span, l.inside
  if is_tail then from, span, inside = i, l.at - at, l.total - l.units - before end
  if l.at == now then
    n = n + l.units
  else
    next, span, inside = entry(now - l.at, l.units), span + now - l.at, inside + l.units
    local size = #l.tail + 1 - from
    if is_tail then fits = size < alone * #next else fits = size + #next <= fill end
    fits = fits and span < widest and inside < widest
  end
  if is_tail and not fits then
    local all = records(c, first)
    while all[1].at < at do table.remove(all, 1) end
    all[#all + 1] = {at = now, units = n}
    put_ring(c, all, total, window, till, expires)
    return
  end
  local ends = renew and expires or nil
  if is_tail then
    put_alone(c, chunk(now, total, n, span, inside, sub(l.tail, from) .. next, window, till), l.pages > 0 and expires or ends)
    return
  end
  forget(c, first, at, before, i)
  if not fits then
    push(c, l.tail, chunk(now, total, n, 0, 0, '', window, till), ends)
    return
  end
  put_newest(c, chunk(now, total, n, span, inside, sub(l.tail, from) .. next, window, till))
  if ends then call('PEXPIREAT', c.key, ends) end
end

function log.look(c, now)
  load(c)
  local fits = true
  for j = 1, c.policies do
    local window, left = c.window[j], c.limit[j]
    local at, before = locate(c, now - window + 1, 0)
    c.effective[j] = window
    if at then
      left = left - (c.log.total - before)
      if at < now then c.effective[j] = window - (now - at) end
    end
    c.allowed[j] = c.cost == 0 or c.cost <= left
    c.remaining[j] = left
    fits = fits and c.allowed[j]
  end
  return fits
end

function log.spend(c, now)
  add(c, now, c.cost)
  for j = 1, c.policies do
    c.remaining[j] = c.remaining[j] - c.cost
    c.retry[j], c.reset[j] = 0, c.window[j]
    if c.remaining[j] > 0 then c.effective[j] = c.window[j] end
  end
end

function log.explain(c, now, repair)
  local newest = c.log and c.log.at or now
  if newest > now then
    if repair then
      pull_back(c, now)
      call('PEXPIREAT', c.key, horizon.renewed(c, now, c.log.window, c.log.till))
    end
    newest = now
  end
  for j = 1, c.policies do
    local remaining = c.remaining[j]
    if c.allowed[j] then
      c.retry[j] = 0
    elseif c.cost > c.limit[j] then
      c.retry[j] = -1
    else
      c.retry[j] = leaves(c, now, j, c.cost - remaining - 1)
    end
    c.reset[j] = 0
    if remaining < c.limit[j] then
      c.reset[j] = c.window[j] - (now - newest)
    end
    if remaining < 0 then
      c.effective[j] = leaves(c, now, j, -remaining)
      c.remaining[j] = 0
    end
  end
end

-- Returns a chunk as the newest one, which has the horizon.
local function as_newest(c, text)
  local at, total, units, i, span, inside = newest(text)
  return chunk(at, total, units, span, inside, sub(text, i), c.log.window, c.log.till)
end

-- Removes the newest chunk: what it held is given back. total is what is left.
local function drop_newest(c, total)
  local l = c.log
  if l.pages == 0 then
    call('UNLINK', c.key)
    return
  end
  local at, before, from, text, _, up_to = begin(c, 0)
  if up_to == total then
    put_alone(c, as_newest(c, rest(since(text, -base(c, 0)), at, before, from)))
    return
  end
  local i = search(c, 0, total - 1)
  text = as_newest(c, since(chunk_of(c, i), -base(c, i)))
  l.pages = i
  put_newest(c, text)
end

function log.settle(c, now, at, delta)
  load(c)
  if delta > 0 then
    add(c, now, delta)
    return
  end
  local found, _, i = locate(c, at, 0)
  if found ~= at then return end
  local l = c.log
  local all, total = records(c, i)
  local k = 1
  while all[k].at ~= at do k = k + 1 end
  local back, last = math.min(all[k].units, -delta), all[#all].at
  all[k].units = all[k].units - back
  if all[k].units == 0 then table.remove(all, k) end
  if i == l.pages then
    if not all[1] then
      drop_newest(c, total - back)
    elseif i == 0 then
      put_alone(c, pack_records(all, total - back, 1, #all, l.window, l.till))
    else
      put_newest(c, pack_records(all, total - back, 1, #all, l.window, l.till))
    end
    return
  end
  local text
  if all[1] then
    text = pack_records(all, total - base(c, i), 1, #all)
  else
    text = pack(lone, last, total - base(c, i), 0, 0) .. char(0)
  end
  put_page(c, i, text)
  lower(c, i, back)
  if i > 0 then
    put_newest(c, l.tail)
  elseif all[1] then
    local _, _, _, skip = newest(text)
    l.skip, l.oldest = skip, all[1].at
    put_newest(c, l.tail)
  else
    local first = search(c, 0, l.before)
    local oldest, before, skip = begin(c, first)
    if first == l.pages then
      put_alone(c, l.tail)
    else
      forget(c, first, oldest, before, skip)
      put_newest(c, l.tail)
    end
  end
end

return log
