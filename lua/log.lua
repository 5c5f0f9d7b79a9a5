-- log: the exact sliding-window log, packed. Twin of window/log.go.
--
-- Key     a string: one chunk of records (see logchunk.lua), or a ring of pages with a chunk
--         each (see logring.lua)
-- Options none
--
-- The key never ceases to exist while it holds a unit: in a Cluster, a script cannot
-- write a key that it has deleted, if the slot of the key is being moved.
--
-- Since each chunk tells how many units came before, those of any window are the
-- difference of two chunks, of which the older is read from its start to the window's
-- edge. What has left the longest window is skipped, so that most often only the newest
-- chunk is read.
--
-- c.own holds what logring.lua has read, and
--   oldest  by policy, the time of the oldest unit in its window when the counter was read
local log, horizon, verdict, chunks, rings = {}, module('horizon'), module('verdict'), module('logchunk'), module('logring')
local entry, read_chunk, write_chunk, write_records = chunks.entry, chunks.read, chunks.write, chunks.write_records
local rest, since = chunks.rest, chunks.since
local load, locate, records = rings.load, rings.locate, rings.records
local put_alone, put_newest, forget = rings.put_alone, rings.put_newest, rings.forget
local call, sub, floor, max, min = redis.call, string.sub, math.floor, math.max, math.min

-- Keys expire at a multiple of a quarter of the window, so that not each record has to
-- put that off. Returns when one does that is kept for a window after now.
local function expiry(now, window)
  local quarter = min(window, max(100, floor(window / 4)))
  return (floor(now / quarter) + 1) * quarter + window
end

-- Moves everything that lies in the future to now.
local function pull_back(c, now)
  local l = c.own.log
  local total = l.total
  local _, before, i = locate(c, now, 0)
  local all = records(c, i)
  while all[1] and all[#all].at >= now do table.remove(all) end
  all[#all + 1] = {at = now, units = total - before}
  local tail = write_records(all, total, 1, #all, l.window, l.till)
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
  local l = c.own.log
  local at, units, first, i = locate(c, now - c.keep + 1, 0)
  if first == l.pages then
    put_alone(c, since(rest(l.tail, at, units, i), units))
  else
    forget(c, first, at, units, i)
    rings.lower(c, 0, units)
    l.before = 0
    put_newest(c, l.tail)
  end
  load(c)
end

-- Adds n units at now, and forgets what nobody looks at any more. Writes that need memory
-- come first: without it nothing at all is changed.
local function add(c, now, n)
  local l = c.own.log
  local window, till = horizon.after(c, now, l and l.window, l and l.till, function() return l.at end)
  local expires, renew = c.expires, true
  if till == 0 then
    expires = expiry(now, window)
    renew = not l or l.at > now or l.window ~= window or l.till > 0 or expires ~= expiry(l.at, window)
    expires = string.format('%d', expires)
  end
  local edge = now - c.keep
  if l and l.at > now then pull_back(c, now) end
  if c.own.log and c.own.log.at > edge and n > most_units - c.own.log.total then
    rebase(c, now)
    n = min(n, most_units - c.own.log.total)
    if n == 0 then return end
  end
  local at, before, first, i = locate(c, edge + 1, 0)
  if not at then
    call('SET', c.key, write_chunk(now, n, n, 0, 0, '', window, till), 'PXAT', expires)
    return
  end
  local total, is_tail, fits, added = l.total + n, first == l.pages, true, ''
  local from, span, inside = l.entries, l.span, l.inside
  if is_tail then from, span, inside = i, l.at - at, l.total - l.units - before end
  if l.at == now then
    n = n + l.units
  else
    added, span, inside = entry(now - l.at, l.units), span + now - l.at, inside + l.units
    local size = #l.tail + 1 - from
    if is_tail then fits = size < log_alone * #added else fits = size + #added <= log_fill end
    fits = fits and span < log_widest and inside < log_widest
  end
  if is_tail and not fits then
    local all = records(c, first)
    while all[1].at < at do table.remove(all, 1) end
    all[#all + 1] = {at = now, units = n}
    rings.put_ring(c, all, total, window, till, expires)
    return
  end
  local ends = renew and expires or nil
  if is_tail then
    put_alone(c, write_chunk(now, total, n, span, inside, sub(l.tail, from) .. added, window, till), l.pages > 0 and expires or ends)
    return
  end
  forget(c, first, at, before, i)
  if not fits then
    rings.push(c, l.tail, write_chunk(now, total, n, 0, 0, '', window, till), ends)
    return
  end
  put_newest(c, write_chunk(now, total, n, span, inside, sub(l.tail, from) .. added, window, till))
  if ends then call('PEXPIREAT', c.key, ends) end
end

-- Returns the units that the window of policy j holds.
local function count(c, now, j)
  local own = c.own
  local at, before = locate(c, now - c.window[j] + 1, 0)
  own.oldest[j] = at
  return at and own.log.total - before or 0
end

-- The time until the window of policy j holds at most n units.
local function falls(c, now, j, n)
  local window, own = c.window[j], c.own
  local at = own.oldest[j]
  if n < c.limit[j] - c.remaining[j] - 1 then at = locate(c, now - window + 1, own.log.total - n - 1) end
  return window - (now - min(at or now, now))
end

-- Reads the log of a charge.
local function read(c)
  load(c)
  c.own.oldest = c.own.oldest or {}
end

-- The time of the newest unit, or nil. With repair, what lies in the future is moved to now.
local function newest(c, now, repair)
  local l = c.own.log
  if repair and l and l.at > now then
    pull_back(c, now)
    call('PEXPIREAT', c.key, horizon.renewed(c, now, l.window, l.till))
  end
  return l and l.at
end

log.look, log.spend, log.explain = verdict({read = read, count = count, falls = falls, newest = newest, add = add})

-- Returns a chunk as the newest one, which has the horizon.
local function as_newest(c, text)
  local at, total, units, i, span, inside = read_chunk(text)
  return write_chunk(at, total, units, span, inside, sub(text, i), c.own.log.window, c.own.log.till)
end

-- Removes the newest chunk: what it held is given back. total is what is left.
local function drop_newest(c, total)
  local l = c.own.log
  if l.pages == 0 then
    call('UNLINK', c.key)
    return
  end
  local at, before, from, text, _, up_to = rings.begin(c, 0)
  if up_to == total then
    put_alone(c, as_newest(c, rest(since(text, -rings.base(c, 0)), at, before, from)))
    return
  end
  local i = rings.search(c, 0, total - 1)
  text = as_newest(c, since(rings.chunk_of(c, i), -rings.base(c, i)))
  l.pages = i
  put_newest(c, text)
end

-- Gives back up to n of the units that were spent at a time.
local function give_back(c, at, n)
  local found, _, i = locate(c, at, 0)
  if found ~= at then return end
  local l = c.own.log
  local all, total = records(c, i)
  local k = 1
  while all[k].at ~= at do k = k + 1 end
  local back, last = min(all[k].units, n), all[#all].at
  all[k].units = all[k].units - back
  if all[k].units == 0 then table.remove(all, k) end
  if i == l.pages then
    if not all[1] then
      drop_newest(c, total - back)
    elseif i == 0 then
      put_alone(c, write_records(all, total - back, 1, #all, l.window, l.till))
    else
      put_newest(c, write_records(all, total - back, 1, #all, l.window, l.till))
    end
    return
  end
  local text
  if all[1] then
    text = write_records(all, total - rings.base(c, i), 1, #all)
  else
    text = chunks.empty(last, total - rings.base(c, i))
  end
  rings.put_page(c, i, text)
  rings.lower(c, i, back)
  if i > 0 then
    put_newest(c, l.tail)
  elseif all[1] then
    local _, _, _, skip = read_chunk(text)
    l.skip, l.oldest = skip, all[1].at
    put_newest(c, l.tail)
  else
    local first = rings.search(c, 0, l.before)
    local oldest, before, skip = rings.begin(c, first)
    if first == l.pages then
      put_alone(c, l.tail)
    else
      forget(c, first, oldest, before, skip)
      put_newest(c, l.tail)
    end
  end
end

function log.settle(c, now, at, delta)
  load(c)
  if delta > 0 then add(c, now, delta) else give_back(c, at, -delta) end
end

return log
