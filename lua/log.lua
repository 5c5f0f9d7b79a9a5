-- log: the exact sliding-window log, packed. Twin of window/log.go.
--
-- Key     a string: one chunk; or, of more, a list of them, oldest first. A chunk holds
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
--         The extension stands before the entries, and has 6 bytes each for the window and
--         till of the horizon. It is there unless till is 0 and the window is below 2^32.
--         The horizon of the newest chunk counts.
--         An entry is one or two varints:
--           varint   ms × 2, + 1 if units follow
--           varint   units, which are left out if they are 1
--         A varint has 7 bits in a byte, the lowest first, and the top bit set in
--         every byte but the last.
-- Options none
--
-- A string is read and written in two thirds of the time of a list, and takes less
-- memory, but all of it is read each time. To MGET a list is nothing, and no error.
--
-- Since each chunk tells how many units came before, those of any window are the
-- difference of two chunks, of which the older is read from its start to the window's
-- edge: what has left the longest window goes from there when the chunk is written, so
-- that most often there is nothing to read. To give units back, the chunks after theirs
-- are written anew.
local log, horizon = {}, module('horizon')

local full = 32       -- entries of a chunk among others, as if all were as long as the next one
local alone = 128     -- of the only one, likewise
local stale = 16      -- bytes of entries that may have left before a chunk is written for that alone
local most = 2 ^ 53   -- units: above, they cannot be counted one by one
local widest = 2 ^ 32 -- ms, and units, of a chunk; and ms of a window without extension
local extended = 2 ^ 47

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

local function text_of(n) return string.format('%d', n) end

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

-- Reads the two chunks that most decisions are made of. Until the year 3084, no chunk
-- begins as text does.
local function load(c)
  c.log = nil
  local text = call('MGET', c.key)[1]
  local tail = text or call('LINDEX', c.key, '-1')
  if not tail then return end
  if text and (#text < 18 or byte(text) % 128 > 31) then error('WRONGTYPE the key holds no log', 0) end
  local l = c.room
  if not l then
    l = {}
    c.room = l
  end
  c.log = l
  l.is_string, l.tail = text, tail
  l.at, l.total, l.units, l.entries, l.span, l.inside, l.window, l.till = newest(tail)
  l.head = text and tail or call('LINDEX', c.key, '0')
end

-- Writes a chunk in the place of one that is there.
local function replace(c, i, text)
  if not c.log.is_string then
    call('LSET', c.key, i, text)
  elseif #text < #c.log.tail then
    call('SET', c.key, text, 'KEEPTTL')
  else
    call('SETRANGE', c.key, '0', text)
  end
end

-- Drops all chunks but some.
local function keep(c, first, last)
  if not c.log.is_string then call('LTRIM', c.key, first, last) end
end

-- Returns the chunks from one on.
local function chunks_from(c, first)
  if c.log.is_string then return {c.log.tail} end
  return call('LRANGE', c.key, first, '-1')
end

-- Finds the first chunk behind the head with a record at t or later and a running
-- total above k. There is one: the tail.
local function search(c, t, k)
  local low, high, middle = 1, call('LLEN', c.key) - 1, 1
  local found = c.log.tail
  while low < high do
    local text = call('LINDEX', c.key, middle)
    local at, total = newest(text)
    if at >= t and total > k then
      high, found = middle, text
    else
      low = middle + 1
    end
    middle = floor((low + high) / 2)
  end
  return found, low
end

-- Finds the oldest record at t or later up to and with which there are more than
-- k units. Returns its time, the units before it, and the chunk from there on: its
-- index, itself, and where its entries begin; nothing if there is none.
local function locate(c, t, k)
  local l = c.log
  if not l or l.at < t or l.total <= k then return end
  local text, index = l.head, 0
  local newest_at, total, units, i, span, inside = l.at, l.total, l.units, l.entries, l.span, l.inside
  if text ~= l.tail then
    newest_at, total, units, i, span, inside = newest(text)
    if newest_at < t or total <= k then
      text, index = search(c, t, k)
      newest_at, total, units, i, span, inside = newest(text)
    end
  end
  local at, before, size = newest_at - span, total - units - inside, #text
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
  return at, before, index, text, i
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

-- Returns the records of a chunk, oldest first, its running total and its horizon.
local function records(text)
  local last, total, units, i, span, _, window, till = newest(text)
  local all, at = {}, last - span
  while i <= #text do
    local gap, n
    gap, i = read_varint(text, i)
    n = gap % 2
    gap = (gap - n) / 2
    if n == 0 then n = 1 else n, i = read_varint(text, i) end
    all[#all + 1] = {at = at, units = n}
    at = at + gap
  end
  all[#all + 1] = {at = last, units = units}
  return all, total, window, till
end

local function pack_records(all, total, window, till)
  local last, entries, inside = all[#all], {}, 0
  for k = 1, #all - 1 do
    entries[k] = entry(all[k + 1].at - all[k].at, all[k].units)
    inside = inside + all[k].units
  end
  return chunk(last.at, total, last.units, last.at - all[1].at, inside, table.concat(entries), window, till)
end

-- Moves everything that lies in the future to now.
local function pull_back(c, now)
  local total = c.log.total
  local _, before, i, text = locate(c, now, 0)
  local all = records(text)
  while all[1] and all[#all].at >= now do table.remove(all) end
  all[#all + 1] = {at = now, units = total - before}
  replace(c, i, pack_records(all, total, c.log.window, c.log.till))
  keep(c, '0', i)
  load(c)
end

-- Returns a chunk without the records before a time, up to which there are so many
-- units; its entries then begin at i.
local function rest(text, at, before, i)
  local newest_at, total, units, _, _, _, window, till = newest(text)
  return chunk(newest_at, total, units, newest_at - at, total - units - before, sub(text, i), window, till)
end

-- Returns a chunk before which so many units less have come.
local function earlier(text, base)
  local at, total, units, i, span, inside, window, till = newest(text)
  return chunk(at, total - base, units, span, inside, sub(text, i), window, till)
end

-- Makes room for running totals: forgets what nobody looks at any more, and counts from
-- there.
local function rebase(c, now)
  local at, base, first, text, i = locate(c, now - c.keep + 1, 0)
  local chunks = chunks_from(c, first)
  chunks[1] = rest(text, at, base, i)
  for k = 1, #chunks do replace(c, first + k - 1, earlier(chunks[k], base)) end
  keep(c, first, '-1')
  load(c)
end

-- Adds n units at now, and forgets what nobody looks at any more: whole chunks, and the
-- beginning of one where that is much, or it is written anyway. Writes that need memory
-- come first: without it nothing at all is changed.
local function add(c, now, n)
  local l = c.log
  local window, till = horizon.after(c, now, l and l.window, l and l.till, function() return l.at end)
  local expires, renew = c.expires, true
  if till == 0 then
    expires = expiry(now, window)
    renew = not l or l.window ~= window or l.till > 0 or expires ~= expiry(l.at, window)
    expires = text_of(expires)
  end
  local edge = now - c.keep
  if l and l.at > now then
    pull_back(c, now)
    renew = true
  end
  if l and l.at > edge and n > most - l.total then
    rebase(c, now)
    n = math.min(n, most - l.total)
    if n == 0 then return end
  end
  local at, before, first, text, i = locate(c, edge + 1, 0)
  if not at then
    call('SET', c.key, chunk(now, n, n, 0, 0, '', window, till), 'PXAT', expires)
    return
  end
  local total, is_tail, fits, next = l.total + n, text == l.tail, true, ''
  local from, span, inside = l.entries, l.span, l.inside
  if is_tail then from, span, inside = i, l.at - at, l.total - l.units - before end
  if l.at == now then
    n = n + l.units
  else
    next, span, inside = entry(now - l.at, l.units), span + now - l.at, inside + l.units
    fits = #l.tail + 1 - from < (is_tail and alone or full) * #next and span < widest and inside < widest
  end
  if is_tail and not fits then
    replace(c, '-1', l.tail) -- so that without memory nothing is changed
    call('DEL', c.key)
    call('RPUSH', c.key, rest(text, at, before, i), chunk(now, total, n, 0, 0, '', window, till))
    call('PEXPIREAT', c.key, expires)
    return
  end
  local last = ''
  if fits then last = chunk(now, total, n, span, inside, sub(l.tail, from) .. next, window, till) end
  if is_tail then
    if renew or not l.is_string then
      call('SET', c.key, last, 'PXAT', expires)
    else
      replace(c, '-1', last)
    end
    return
  end
  if fits then
    call('LSET', c.key, '-1', last)
  else
    call('RPUSH', c.key, chunk(now, total, n, 0, 0, '', window, till))
  end
  local _, _, _, begin = newest(text)
  if i - begin > stale then call('LSET', c.key, first, rest(text, at, before, i)) end
  if first > 0 then call('LTRIM', c.key, first, '-1') end
  if renew then call('PEXPIREAT', c.key, expires) end
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

function log.settle(c, now, at, delta)
  load(c)
  if delta > 0 then
    add(c, now, delta)
    return
  end
  local found, _, i = locate(c, at, 0)
  if found ~= at then return end
  local chunks = chunks_from(c, i)
  local all, total, window, till = records(chunks[1])
  local k = 1
  while all[k].at ~= at do k = k + 1 end
  local back, shift = math.min(all[k].units, -delta), 0
  all[k].units = all[k].units - back
  if all[k].units == 0 then table.remove(all, k) end
  if all[1] then
    replace(c, i, pack_records(all, total - back, window, till))
  elseif c.log.is_string then
    call('DEL', c.key)
  else
    shift = 1
  end
  for later = 2, #chunks do
    replace(c, i + later - 1 - shift, earlier(chunks[later], back))
  end
  if shift == 1 then call('LTRIM', c.key, '0', '-2') end
end

return log
