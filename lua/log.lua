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
-- c.own holds what logring.lua lists, and
--   oldest  by policy, the time of the oldest unit in its window when the counter was read
local horizon, verdict, chunks, rings = module('horizon'), module('verdict'), module('logchunk'), module('logring')
local write_chunk, load, locate, put_alone = chunks.write, rings.load, rings.locate, rings.put_alone
local call, sub, floor, max, min = redis.call, string.sub, math.floor, math.max, math.min

-- Keys expire at a multiple of a quarter of the window, so that not each record has to
-- put that off. Returns when one does that is kept for a window after now.
local function expiry(now, window)
  local quarter = min(window, max(100, floor(window / 4)))
  return (floor(now / quarter) + 1) * quarter + window
end

-- Adds n units at now, and forgets what is not read any more. Writes that need memory
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
  if l and l.at > now then module('logchange').pull_back(c, now) end
  if c.own.log and c.own.log.at > edge and n > most_units - c.own.log.total then
    module('logchange').rebase(c, now)
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
    added, span, inside = chunks.entry(now - l.at, l.units), span + now - l.at, inside + l.units
    local size = #l.tail + 1 - from
    if is_tail then fits = size < log_alone * #added else fits = size + #added <= log_fill end
    fits = fits and span < log_widest and inside < log_widest
  end
  if is_tail and not fits then
    local pages = module('logpages')
    local all = pages.records(c, first)
    while all[1].at < at do table.remove(all, 1) end
    all[#all + 1] = {at = now, units = n}
    pages.put_ring(c, all, total, window, till, expires)
    return
  end
  local ends = renew and expires or nil
  if is_tail then
    put_alone(c, write_chunk(now, total, n, span, inside, sub(l.tail, from) .. added, window, till), l.pages > 0 and expires or ends)
    return
  end
  local pages = module('logpages')
  pages.forget(c, first, at, before, i)
  if not fits then
    pages.push(c, l.tail, write_chunk(now, total, n, 0, 0, '', window, till), ends)
    return
  end
  pages.put_newest(c, write_chunk(now, total, n, span, inside, sub(l.tail, from) .. added, window, till))
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
  c.own = c.own or rings.room()
  load(c)
end

-- The time of the newest unit, or nil. With repair, what lies in the future is moved to now.
local function newest(c, now, repair)
  local l = c.own.log
  if repair and l and l.at > now then
    module('logchange').pull_back(c, now)
    call('PEXPIREAT', c.key, horizon.renewed(c, now, l.window, l.till))
  end
  return l and l.at
end

local look, spend, explain = verdict(read, count, falls, newest, add)

local function settle(c, now, at, delta)
  read(c)
  if delta > 0 then add(c, now, delta) else module('logchange').give_back(c, at, -delta) end
end

return {look = look, spend = spend, explain = explain, settle = settle}
