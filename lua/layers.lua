-- layers: units counted in coarse and in fine slices. Twin of window/layers.go.
--
-- Key     a hash of slices: see layershistory.lua
-- Options length of a coarse and of a fine slice in ms; the first is a multiple
--         of the second
--
-- A coarse slice counts what its fine ones do. Times are ms.
--
-- c.own is a history: see layershistory.lua.
local horizon, verdict, histories = module('horizon'), module('verdict'), module('layershistory')
local fetch, forget, number, put_slice, save = histories.fetch, histories.forget, histories.number, histories.put_slice, histories.save

-- Names that a decision forgets at once, and fields that it looks at for those to forget: all
-- if there are no more than many, and some at random if there are.
local names_at_once, many, some = 100, 200, '20'

-- Books n units at a time no earlier than any other. Returns whether they belong
-- to the open slice; else that one is closed.
local function add_to(h, l, at, n)
  if l.open then
    local current = number(l, l.open.at)
    if current == number(l, at) then
      l.open.count = l.open.count + n
      return true
    end
    l.closed[current] = l.open
    put_slice(h, l, current, l.open)
  end
  l.open = {at = at, count = n}
  return false
end

-- Forgets those of some fields that are slices which end before since. Returns how many.
local function forget_of(h, fields, step)
  local found = 0
  for i = 1, #fields, step do
    for _, l in ipairs({h.coarse, h.fine}) do
      local n = tonumber(string.match(fields[i], '^' .. l.prefix .. '(%-?%d+)$'))
      if n and n < l.to then
        forget(h, l, n)
        found = found + 1
      end
    end
  end
  return found
end

-- Forgets the closed slices that end before since: all numbers from the last such time
-- on if they are few, or else the fields. Of many fields, some are looked at now, and some
-- with each further charge, until none of them is one to forget.
local function drop(c, h, since)
  local all, numbers = {h.coarse, h.fine}, 0
  for _, l in ipairs(all) do
    l.from, l.to = number(l, h.since), math.min(number(l, since), number(l, l.open.at))
    numbers = numbers + l.to - l.from
  end
  if h.fine.complete then
    for _, l in ipairs(all) do
      for n, t in pairs(l.closed) do
        if t and n < l.to then forget(h, l, n) end
      end
    end
    return
  end
  if numbers <= names_at_once then
    for _, l in ipairs(all) do
      for n = l.from, l.to - 1 do forget(h, l, n) end
    end
  else
    h.has_stale = true
  end
  if not h.has_stale then return end
  if redis.call('HLEN', c.key) <= many then
    forget_of(h, redis.call('HGETALL', c.key), 2)
    h.has_stale = false
  else
    h.has_stale = forget_of(h, redis.call('HRANDFIELD', c.key, some), 1) > 0
  end
end

-- Visits the slices with numbers first to last, oldest first. Returns whether none
-- of the visits was the last wanted.
local function each_of(c, l, first, last, visit)
  if not l.open then return true end
  fetch(c, l, first, last)
  local current = number(l, l.open.at)
  for n = first, math.min(last, current - 1) do
    if l.closed[n] and not visit(l.closed[n]) then return false end
  end
  return current < first or current > last or visit(l.open)
end

-- Counts n units in both layers, at a time no earlier than any other.
local function book(h, at, n)
  local coarse, fine = h.coarse, h.fine
  local is_first = fine.open and coarse.open.at == fine.open.at -- the open fine slice of the open coarse one
  if add_to(h, fine, at, n) then
    if is_first then coarse.open.at = at end
    fine.open.at = at
  end
  add_to(h, coarse, at, n)
end

-- Whether the clock has stepped back since the last unit.
local function stepped(h, now)
  return h.fine.open and math.max(h.fine.open.at, h.since) > now
end

-- Books every slice anew in a new history, less back units of the slice that counts
-- the time at. The second value says whether there is one. h is used up.
local function refit(c, h, now, at, back)
  local fit = histories.make(c.option[1], c.option[2], math.min(h.since, now))
  fit.window, fit.till = h.window, h.till
  local loaded, names = histories.load_all(c, h)
  local all = {}
  for _, t in ipairs(loaded) do
    t.at = math.min(t.at, now)
    local previous = all[#all]
    if previous and number(fit.fine, previous.at) == number(fit.fine, t.at) then
      previous.at, previous.count = t.at, previous.count + t.count
    else
      all[#all + 1] = t
    end
  end
  fit.stale, fit.coarse.complete, fit.fine.complete = names, true, true
  local found = false
  for _, t in ipairs(all) do
    if back > 0 and number(fit.fine, t.at) == number(fit.fine, at) and at <= t.at then
      t.count = t.count - math.min(t.count, back)
      found = true
    end
    if t.count > 0 then book(fit, t.at, t.count) end
  end
  return fit, found
end

-- The history as it looks from now: units that lie in the future count as spent
-- just now, in slices of the lengths of the options.
local function view(c, now)
  local h = histories.open(c)
  c.stepped = h and stepped(h, now)
  if not h then return histories.make(c.option[1], c.option[2], now) end
  if not c.stepped and h.coarse.length == c.option[1] and h.fine.length == c.option[2] then
    return h
  end
  return (refit(c, h, now, 0, 0))
end

-- The first ms that the window holds, and the number of the first coarse slice
-- that lies in it as a whole.
local function within(h, now, window)
  local from = math.max(now - window + 1, h.since)
  return from, math.floor((from + h.coarse.length - 1) / h.coarse.length)
end

-- Visits what the window holds, oldest first: the fine slices before the first
-- whole coarse one, and then the coarse ones.
local function each(c, now, window, visit)
  local h = c.own
  local from, whole = within(h, now, window)
  local function visit_fine(t) return t.at < from or visit(t, false) end
  if each_of(c, h.fine, number(h.fine, from), whole * (h.coarse.length / h.fine.length) - 1, visit_fine) then
    each_of(c, h.coarse, whole, math.huge, function(t) return visit(t, true) end)
  end
end

-- How many units the window of policy j holds.
local function count(c, now, j)
  local units = 0
  each(c, now, c.window[j], function(t)
    units = units + t.count
    return true
  end)
  return units
end

-- The time until the window of policy j holds at most n units.
local function falls(c, now, j, n)
  local window, rest = c.window[j], count(c, now, j)
  if rest <= n then return 0 end
  local h, edge = c.own, 0
  local function leave(t, whole)
    -- Where a coarse slice's first unit is not enough, but its last is too much,
    -- its fine slices tell.
    if whole and rest - n > 1 and rest - t.count <= n then
      local fine = h.coarse.length / h.fine.length
      local first = number(h.coarse, t.at) * fine
      return each_of(c, h.fine, first, first + fine - 1, function(t) return leave(t, false) end)
    end
    rest = rest - t.count
    edge = t.at
    return rest > n
  end
  each(c, now, window, leave)
  return edge + window - now
end

-- Adds n units at now, after it dropped the slices that are not read any more.
local function add(c, now, n)
  local h = c.own
  h.window, h.till = horizon.after(c, now, h.window, h.till, function() return h.fine.open and h.fine.open.at end)
  local since = now - c.keep + 1
  if not h.fine.open then
    h.since = since
  elseif since > h.since then
    drop(c, h, since)
    if h.fine.open.at < since then h.coarse.open, h.fine.open = nil, nil end
    h.since = since
  end
  book(h, now, n)
  save(c, c.expires)
end

-- Reads the history of a charge.
local function load(c, now) c.own = view(c, now) end

-- The time of the newest unit, or nil. With repair, writes the history if it lay in the future.
local function newest(c, now, repair)
  local h = c.own
  if repair and c.stepped then save(c, horizon.renewed(c, now, h.window, h.till)) end
  return h.fine.open and h.fine.open.at
end

local look, spend, explain = verdict(load, count, falls, newest, add)

local function settle(c, now, at, delta)
  if delta > 0 then
    load(c, now)
    add(c, now, delta)
    return
  end
  local h = histories.open(c)
  if not h then return end
  c.own, c.stepped = h, stepped(h, now)
  if c.stepped or h.coarse.length ~= c.option[1] or h.fine.length ~= c.option[2] then
    local found
    c.own, found = refit(c, h, now, at, -delta)
    if found or c.stepped then save(c) end
    return
  end
  local found, rest = module('layersback').take_back(c, h, at, -delta)
  if found and rest then
    save(c)
  elseif found then
    redis.call('UNLINK', c.key)
  end
end

return {look = look, spend = spend, explain = explain, settle = settle}
