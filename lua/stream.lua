-- stream: the exact sliding-window log, readable. Twin of window/stream.go.
--
-- Key     a stream: an entry per request (see streamentries.lua), and those that say which
--         units were given back (see streamback.lua)
-- Options how long entries are kept, in ms, if longer than the longest window
--
-- Running totals make the count of any window the difference of two entries. What
-- is gone is noted in the newest entry, because it may be kept, and counts no more.
--
-- The key never ceases to exist while there is a unit to read: in a Cluster, a script
-- cannot write a key that it has deleted, if the slot of the key is being moved.
--
-- c.own holds what streamentries.lua and streamback.lua have read, and
--   looks  ms of the longest window
--   live   units in all that were not given back
--   first, number, base
--          by policy, the first entry in its window, or nil; and the units that came before it,
--          with and without those given back
local horizon, verdict = module('horizon'), module('verdict')
local entries, back = module('streamentries'), module('streamback')
local text, read, note, nothing, last = entries.text, entries.read, entries.note, entries.nothing, entries.last
local write, expires, expire = entries.write, entries.expires, entries.expire
local check_ids, reopen, parse = entries.check_ids, entries.reopen, entries.parse
local left, number = back.left, back.number

local unpack = table.unpack or unpack -- the name depends on the version of Lua
local call, floor, max, min = redis.call, math.floor, math.max, math.min

local at_once = 1000   -- entries that are trimmed in a call
local looked_at = 200  -- entries of one time among which the charge's is looked for
local few = 50         -- entries that are written anew to give back units before them

-- Writes all entries anew: change(ms) returns their new time, and running totals are lowered
-- by a number of units that were not given back.
local function rewrite(c, change, by)
  local found, all, own = call('XRANGE', c.key, '-', '+'), {}, c.own
  for _, entry in ipairs(found) do
    local e, fields = read(entry), entry[2]
    local total, units = left(c, e.total), 0
    if e.cost > 0 then units = total - left(c, e.total - e.cost) end
    if units > 0 then
      fields[2], fields[4], e.gone = units, max(0, total - by), max(0, left(c, e.gone) - by)
      all[#all + 1] = {ms = change(e.last_ms), fields = fields, entry = e}
    end
  end
  if not all[1] then by = own.live end -- no unit has a number any more
  for j = 1, c.policies do
    local first = own.first[j]
    own.base[j] = own.base[j] - by
    own.number[j] = own.base[j]
    if first then first.total = left(c, first.total) - by end
  end
  local live, gone = own.live - by, max(0, left(c, own.newest.gone) - by)
  expire(c) -- first: after it, want of memory stops nothing
  check_ids(c)
  call('XTRIM', c.key, 'MAXLEN', 0)
  if not reopen(c, '0-1') then call('UNLINK', c.key) end
  local window, till, n = own.newest.window, own.newest.till, nothing()
  own.newest = n
  for i, e in ipairs(all) do
    local entry = e.entry
    if i == #all then entry.gone, entry.window, entry.till = gone, window, till end
    e.fields[6] = note(entry)
    write(c, e.ms, e.fields)
    n.ms, n.total, n.gone, n.window, n.till = e.ms, e.fields[4], entry.gone, entry.window, entry.till
  end
  own.index, own.leaves, own.live = nil, nil, live
end

-- Moves everything that lies in the future to now.
local function pull_back(c, now)
  if c.own.newest.last_ms > now then
    rewrite(c, function(ms) return min(ms, now) end, 0)
  end
end

-- The first entry behind an edge, or nil, and the total of those that do not count since.
local function first_behind(c, edge)
  local n = c.own.newest
  if n.ms <= edge then return nil, n.total end
  local first = read(call('XRANGE', c.key, max(0, edge + 1), '+', 'COUNT', 1)[1])
  return first, max(first.total - first.cost, n.gone)
end

-- The units that the window of policy j holds. Notes what comes before them.
local function count(c, now, j)
  local own = c.own
  local first, before = first_behind(c, now - c.window[j])
  own.first[j], own.number[j], own.base[j] = first, before, left(c, before)
  return own.live - own.base[j]
end

-- The time until the window of policy j holds at most n units.
local function falls(c, now, j, n)
  local window, own, first = c.window[j], c.own, c.own.first[j]
  local nth = own.base[j] + c.limit[j] - c.remaining[j] - n -- the last unit that has to leave
  if not first or nth > own.live then return window end
  local unit = number(c, nth)
  if unit <= first.total then return window - (now - min(first.last_ms, now)) end
  local from, to = min(first.last_ms, own.newest.ms), own.newest.ms
  while from < to do
    local middle = floor((from + to) / 2)
    local entry = last(c, middle)
    if entry and entry.total >= unit then
      to = entry.last_ms
      if entry.total - entry.cost < unit then break end
    else
      from = middle + 1
    end
  end
  return window - (now - min(to, now))
end

-- Removes entries that are kept no longer, some at a time. Whole blocks of a hundred go
-- quickly; the rest is at most one of these, once there are no more.
local function trim(c, oldest)
  local gone = call('XTRIM', c.key, 'MINID', '~', oldest, 'LIMIT', at_once)
  if gone < at_once / 2 then call('XTRIM', c.key, 'MINID', '=', oldest) end
end

-- Adds an entry of n units now. c has been looked at.
local function add(c, now, n)
  pull_back(c, now)
  local own = c.own
  local window, till = horizon.after(c, now, own.newest.window, own.newest.till, function()
    return own.live > left(c, own.newest.gone) and own.newest.ms
  end)
  local gone = min(unpack(own.number)) -- that of the longest window
  if c.keep > own.looks then
    local _, before = first_behind(c, now - c.keep)
    gone = min(gone, before)
  end
  if own.newest.total > most_units - n then
    rewrite(c, function(ms) return ms end, left(c, gone))
    n, gone = min(n, most_units - own.newest.total), 0
    if n == 0 then return end
  end
  local newest = own.newest
  local oldest, root = max(0, now - max(c.keep, c.option[1]) + 1), newest.root
  local total, says = newest.total + n, note({gone = gone, window = window, till = till})
  if root and parse(root) >= oldest then says = says .. ' ' .. root end
  write(c, now, {'cost', n, 'total', total, 'gone', says, unpack(c.fields)})
  newest.ms, newest.total, newest.gone, newest.window, newest.till = now, total, gone, window, till
  own.live = own.live + n
  trim(c, text(oldest))
  expire(c)
end

-- Reads the newest entry.
local function load(c, now)
  local own = {
    now = now, newest = last(c, '+') or nothing(), index = nil, leaves = nil,
    looks = max(unpack(c.window, 1, c.policies)), live = 0, first = {}, number = {}, base = {},
  }
  c.own = own
  own.live = left(c, own.newest.total)
end

-- The time of the newest unit. With repair, what lies in the future is moved to now.
local function latest(c, now, repair)
  if repair then pull_back(c, now) end
  return c.own.newest.ms
end

local look, spend, explain = verdict(load, count, falls, latest, add)

-- Whether an entry holds the charge's fields, and no others.
local function is_alike(c, fields)
  if #fields ~= 6 + #c.fields then return false end
  for i, word in ipairs(c.fields) do
    if fields[6 + i] ~= word then return false end
  end
  return true
end

-- Takes up to n units from the entries of a time that are not gone: the latest first,
-- but before them the latest that are like the charge, for it was one of these. Where
-- there are many, it looks at some at a time. Returns what to take.
local function choose(c, at, n)
  local chosen, before = {}, text(at)
  repeat
    local found = call('XREVRANGE', c.key, before, text(at), 'COUNT', looked_at)
    for _, alike in ipairs({true, false}) do
      for _, entry in ipairs(found) do
        local e = n > 0 and read(entry)
        if e and e.cost > 0 and e.total > c.own.newest.gone and is_alike(c, entry[2]) == alike then
          local units = left(c, e.total) - left(c, e.total - e.cost)
          local taken = min(n, units)
          n = n - taken
          chosen[#chosen + 1] = {id = entry[1], number = e.total, units = taken, is_all = taken == units}
        end
      end
    end
    before = found[1] and '(' .. found[#found][1]
  until n == 0 or not found[looked_at]
  return chosen
end

-- Gives back what is chosen, if few entries come behind it: they are written anew.
-- Returns whether they were.
local function rewrite_few(c, chosen)
  if c.own.newest.root then return false end
  local taken, first = {}, chosen[1]
  for _, e in ipairs(chosen) do
    taken[e.id] = e.units
    if e.number < first.number then first = e end
  end
  local found = call('XRANGE', c.key, first.id, '+', 'COUNT', few + 1)
  if found[few + 1] then return false end
  pcall(call, 'PEXPIREAT', c.key, expires(c), 'GT') -- after it, want of memory stops nothing
  check_ids(c)
  local ids, given, n = {}, 0, c.own.newest
  for i, entry in ipairs(found) do ids[i] = entry[1] end
  call('XDEL', c.key, unpack(ids))
  local top = call('XREVRANGE', c.key, '+', '-', 'COUNT', 1)[1]
  local same = reopen(c, top and top[1] or '0-1')
  for _, entry in ipairs(found) do
    local id, fields = entry[1], entry[2]
    local units = taken[id] or 0
    given = given + units
    fields[2], fields[4] = fields[2] - units, fields[4] - given
    if fields[2] > 0 then
      top = entry
      if same then call('XADD', c.key, id, unpack(fields)) else write(c, n.last_ms, fields) end
    end
  end
  if not top then
    call('UNLINK', c.key)
    return true
  end
  -- The next entry needs what is gone, the horizon, and the last id that was given.
  local e = read(top)
  if not same or e.gone ~= n.gone or e.window ~= n.window or e.till ~= n.till then
    write(c, n.last_ms, {'cost', 0, 'total', n.total - given, 'gone', note(n) .. ' - ' .. text(e.ms)})
  end
  return true
end

-- Returns the time of the newest of all units, which is not later than at, nor earlier
-- than the first entry: of what is before that, Redis would look through all.
local function newest_unit(c, at, first)
  if at == first.last_ms then return at end
  local before = last(c, text(at - 1))
  if left(c, before.total) < c.own.live then return at end
  local unit, from, to = number(c, c.own.live), first.last_ms, before.last_ms
  while from < to do
    local middle = floor((from + to) / 2)
    local entry = last(c, text(middle))
    if entry.total >= unit then to = entry.last_ms else from = middle + 1 end
  end
  return to
end

-- Gives back up to n of the units that were spent at a time.
local function give_back(c, at, n)
  if at < 0 or at > c.own.newest.ms then return end
  local chosen = choose(c, at, n)
  if not chosen[1] or rewrite_few(c, chosen) then return end
  local first = read(call('XRANGE', c.key, '-', '+', 'COUNT', 1)[1])
  local all, total = back.items(c, first)
  local own, newest, partly = c.own, c.own.newest, {}
  for _, e in ipairs(chosen) do
    back.mark(c, all, total, e.number, e.units)
    total, own.live = total + e.units, own.live - e.units
    if not e.is_all then partly[#partly + 1] = e end
  end
  local new, old = back.pack_index(c, all, total, #partly)
  if left(c, first.total - first.cost) == own.live then
    call('UNLINK', c.key)
    return
  end
  if at == newest.ms then newest.ms = newest_unit(c, at, first) end
  pcall(call, 'PEXPIREAT', c.key, expires(c), 'GT') -- after it, want of memory stops nothing
  local gone = note(newest)
  for _, e in ipairs(partly) do
    write(c, newest.last_ms, {'cost', 0, 'total', newest.total, 'gone', gone, 'back', e.units, 'of', e.id})
  end
  for i, entry in ipairs(new) do
    local says = gone
    if i == #new then says = gone .. ' ' .. entry.id .. ' ' .. text(newest.ms) end
    write(c, newest.last_ms, {'cost', 0, 'total', newest.total, 'gone', says, 'index', entry.index})
  end
  for _, e in ipairs(chosen) do
    if e.is_all then old[#old + 1] = e.id end
  end
  for _, id in ipairs(old) do call('XDEL', c.key, id) end
end

local function settle(c, now, at, delta)
  look(c, now)
  if delta > 0 then add(c, now, delta) else give_back(c, at, -delta) end
end

return {fields = true, look = look, spend = spend, explain = explain, settle = settle}
