-- log: the exact sliding-window log, packed. Twin of window/log.go.
--
-- Key     a list of chunks, oldest first. A chunk holds records, newest first; a
--         record is all units of one millisecond. Most significant bytes first:
--           6 bytes  ms of the newest record
--           7 bytes  units up to and with this chunk, since the key was new
--           1 byte   units of the newest record; 0 if a varint of them follows
--           4 bytes  ms from the newest record until the key expires, × 2, + 1 if
--                    this is the first chunk; 0 if neither is known
--           entry... for each older record: ms between it and the record before
--                    it in the chunk; its units
--         An entry is one or two varints:
--           varint   ms × 2, + 1 if units follow
--           varint   units, which are left out if they are 1
--         A varint has 7 bits in a byte, the lowest first, and the top bit set in
--         every byte but the last.
-- Options none
--
-- Since each chunk tells how many units came before, those of any window are the
-- difference of two chunks. Chunks are short, because one of the two is read from
-- its start to the window's edge. To give units back, the chunks after theirs are
-- written anew.
local log = {}

local full = 16       -- records of a chunk, as if all were as long as the next one
local most = 2 ^ 53   -- units: above, they cannot be counted one by one

local call, byte, char, sub, floor = redis.call, string.byte, string.char, string.sub, math.floor
local pack, unpack, header = struct.pack, struct.unpack, '>I6I7BI4'

-- How long the key lives from now, in ms: with slack, because expiry must never be
-- earlier than the records say, and not every record has to put it off.
local function life(c)
  if not c.lasts then
    c.lasts = c.longest + math.min(c.longest, math.max(100, floor(c.longest / 4)))
  end
  return c.lasts
end

local function expire(c, now)
  c.expires_late = c.expires_late or string.format('%d', now + life(c))
  call('PEXPIREAT', c.key, c.expires_late)
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

-- Returns a chunk of a newest record and the entries of older ones. known is the
-- part of the header about the key.
local function chunk(at, total, units, older, known)
  if units < 256 then return pack(header, at, total, units, known or 0) .. older end
  return pack(header, at, total, 0, known or 0) .. varint(units) .. older
end

-- Returns a chunk's newest record, its running total, where the others begin, and
-- what is known of the key.
local function newest(text)
  local at, total, units, known, i = unpack(header, text)
  if units == 0 then units, i = read_varint(text, i) end
  return at, total, units, i, known
end

-- Reads the two chunks that most decisions are made of.
local function load(c)
  c.log = nil
  local tail = call('LINDEX', c.key, '-1')
  if not tail then return end
  local l = c.room
  if not l then
    l = {}
    c.room = l
  end
  c.log = l
  local known
  l.tail, l.first = tail, false
  l.at, l.total, l.units, l.older, known = newest(tail)
  l.is_first = known % 2
  l.life = (known - l.is_first) / 2
  l.head = l.is_first == 1 and tail or call('LINDEX', c.key, '0')
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
-- k units. Returns its time, the units before it and the index of its chunk;
-- nothing if there is none.
local function locate(c, t, k)
  local l = c.log
  if not l or l.at < t or l.total <= k then return end
  local text, index = l.head, 0
  local at, total, units, i = l.at, l.total, l.units, l.older
  if text ~= l.tail then
    at, total, units, i = newest(text)
    if at < t or total <= k then
      text, index = search(c, t, k)
      at, total, units, i = newest(text)
    end
  end
  local before, size = total - units, #text
  while i <= size and before > k do
    local gap, high = byte(text, i, i + 1) -- in most cases all of it: no call
    if gap < 128 then
      i = i + 1
    elseif high < 128 then
      gap, i = gap - 128 + high * 128, i + 2
    else
      gap, i = read_varint(text, i)
    end
    units = gap % 2
    gap = (gap - units) / 2
    if at - gap < t then break end
    if units == 0 then units = 1 else units, i = read_varint(text, i) end
    at, before = at - gap, before - units
  end
  return at, before, index
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

-- Returns the records of a chunk, newest first, and its running total.
local function records(text)
  local at, total, units, i = newest(text)
  local all = {{at = at, units = units}}
  while i <= #text do
    local gap
    gap, i = read_varint(text, i)
    units = gap % 2
    at = at - (gap - units) / 2
    if units == 0 then units = 1 else units, i = read_varint(text, i) end
    all[#all + 1] = {at = at, units = units}
  end
  return all, total
end

local function pack_records(all, total)
  local older = ''
  for k = #all, 2, -1 do
    older = entry(all[k - 1].at - all[k].at, all[k].units) .. older
  end
  return chunk(all[1].at, total, all[1].units, older)
end

-- Moves everything that lies in the future to now.
local function pull_back(c, now)
  local total = c.log.total
  local _, before, i = locate(c, now, 0)
  local all = {{at = now, units = total - before}}
  for _, r in ipairs((records(call('LINDEX', c.key, i)))) do
    if r.at < now then all[#all + 1] = r end
  end
  call('LSET', c.key, i, pack_records(all, total))
  call('LTRIM', c.key, '0', i)
  load(c)
end

-- Makes room for running totals: forgets what has left the longest window, and
-- counts from there.
local function rebase(c, now)
  local edge = now - c.longest
  local _, base, first = locate(c, edge + 1, 0)
  for i, text in ipairs(call('LRANGE', c.key, first, '-1')) do
    local all, total = records(text)
    while all[#all].at <= edge do table.remove(all) end
    call('LSET', c.key, first + i - 1, pack_records(all, total - base))
  end
  call('LTRIM', c.key, first, '-1')
  load(c)
end

-- Adds n units at now. Chunks before the one at index first have left the longest
-- window; without first, all have. Writes that need memory come first: without it
-- nothing at all is changed.
local function add(c, now, n, first)
  local l = c.log
  if l and first and l.at > now then
    pull_back(c, now)
    l = c.log
  end
  if l and first and n > most - l.total then
    rebase(c, now)
    l, first = c.log, 0
    n = math.min(n, most - l.total)
  end
  local left = l and l.life - (now - l.at) or 0
  local renew = left < c.longest
  if renew then left = life(c) end
  local known = left < 2 ^ 31 and left * 2 or 0
  if not l then
    call('RPUSH', c.key, chunk(now, n, n, '', known + 1))
  elseif not first then
    call('LSET', c.key, '-1', chunk(now, n, n, '', known + 1))
    if l.head ~= l.tail then call('LTRIM', c.key, '-1', '-1') end
  else
    local total = l.total + n
    if l.at == now then
      call('LSET', c.key, '-1', chunk(now, total, l.units + n, sub(l.tail, l.older), known + l.is_first))
    elseif n > 0 then
      local next = entry(now - l.at, l.units)
      if #l.tail - l.older + 1 < full * #next then
        call('LSET', c.key, '-1', chunk(now, total, n, next .. sub(l.tail, l.older), known + l.is_first))
      else
        call('RPUSH', c.key, chunk(now, total, n, '', known))
      end
    end
    if first > 0 then call('LTRIM', c.key, first, '-1') end
  end
  if renew then expire(c, now) end
end

function log.look(c, now)
  load(c)
  local fits = true
  for j = 1, c.policies do
    local window, left = c.window[j], c.limit[j]
    local at, before, i = locate(c, now - window + 1, 0)
    c.effective[j] = window
    if at then
      left = left - (c.log.total - before)
      if at < now then c.effective[j] = window - (now - at) end
      if window == c.longest then c.log.first = i end
    end
    c.allowed[j] = c.cost == 0 or c.cost <= left
    c.remaining[j] = left
    fits = fits and c.allowed[j]
  end
  return fits
end

function log.spend(c, now)
  add(c, now, c.cost, c.log and c.log.first)
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
      expire(c, now)
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
    local _, _, first = locate(c, now - c.longest + 1, 0)
    add(c, now, delta, first)
    return
  end
  local found, _, i = locate(c, at, 0)
  if found ~= at then return end
  local chunks = call('LRANGE', c.key, i, '-1')
  local all, total = records(chunks[1])
  local k = 1
  while all[k].at ~= at do k = k + 1 end
  local back, shift = math.min(all[k].units, -delta), 0
  all[k].units = all[k].units - back
  if all[k].units == 0 then table.remove(all, k) end
  if all[1] then
    call('LSET', c.key, i, pack_records(all, total - back))
  else
    shift = 1
  end
  for later = 2, #chunks do
    local time, upto, units, older = newest(chunks[later])
    call('LSET', c.key, i + later - 1 - shift, chunk(time, upto - back, units, sub(chunks[later], older)))
  end
  if shift == 1 then call('LTRIM', c.key, '0', '-2') end
end

return log
