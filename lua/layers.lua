-- layers: units counted in coarse and in fine slices. Twin of window/layers.go.
--
-- Key     a hash. Slices have absolute numbers: their time divided by their length.
--         <n>   fine slice n, closed: "<units>:<time of the latest - start>"
--         c<n>  coarse slice n, closed: the same, with the time of its first fine
--               slice
--         open  the two slices that are open: "<coarse time>:<coarse units>:<fine time>:
--               <fine units>"
--         kept  "<coarse>:<fine>:<since>:<window>:<till>:<stale>": the lengths of slices,
--               when the history begins, the horizon (see horizon.lua), and 1 if there may
--               be slices from before the history
--         Every decision needs these two. They are apart because Redis keeps a hash small
--         only while each value has at most 64 bytes (hash-max-listpack-value).
-- Options length of a coarse and of a fine slice in ms; the first is a multiple
--         of the second
--
-- A coarse slice counts what its fine ones do. Times are ms.
--
-- c.own is the history: what was read of the key, and what is to be written.
local horizon, verdict = module('horizon'), module('verdict')
local unpack = table.unpack or unpack

-- Names that a decision forgets at once, and fields that it looks at for those to forget: all
-- if there are no more than many, and some at random if there are.
local names_at_once, many, some = 100, 200, '20'

-- A layer holds slices of one length. The newest is open; of the closed ones, those
-- that were read are known, as false if they are not there.
local function layer(prefix, length) return {prefix = prefix, length = length, closed = {}} end

-- A history of two layers. It knows what it has to write and to delete.
local function history(coarse, fine, since)
  return {coarse = layer('c', coarse), fine = layer('', fine), since = since, window = 0, till = 0, written = {}, stale = {}}
end

local function number(l, t) return math.floor(t / l.length) end

-- Whole numbers above 10^14 lose digits in Lua's own formatting.
local function field(l, n) return string.format('%s%d', l.prefix, n) end
local function value(l, t) return string.format('%d:%d', t.count, t.at - number(l, t.at) * l.length) end

local function tally(l, n, raw)
  local colon = string.find(raw, ':', 1, true)
  return {
    at = n * l.length + tonumber(string.sub(raw, colon + 1)),
    count = tonumber(string.sub(raw, 1, colon - 1)),
  }
end

-- Calls redis with many arguments, a thousand a call: unpack has a limit.
local function call(command, key, args)
  for i = 1, #args, 1000 do
    redis.call(command, key, unpack(args, i, math.min(i + 999, #args)))
  end
end

-- The numbers of a value.
local function numbers_of(raw)
  local v = {}
  for n in string.gmatch(raw, '[^:]+') do v[#v + 1] = tonumber(n) end
  return v
end

-- Reads the history with its open slices. Returns nil if the key has no history.
local function open(c)
  local opened, kept = unpack(redis.call('HMGET', c.key, 'open', 'kept'))
  if not opened then return nil end
  local o, k = numbers_of(opened), numbers_of(kept)
  local h = history(k[1], k[2], k[3])
  h.window, h.till, h.has_stale = k[4], k[5], k[6] == 1
  h.coarse.open = {at = o[1], count = o[2]}
  h.fine.open = {at = o[3], count = o[4]}
  h.kept = kept
  return h
end

-- Reads the closed slices with numbers first to last that are not known.
local function fetch(c, l, first, last)
  local names, numbers = {}, {}
  for n = first, math.min(last, number(l, l.open.at) - 1) do
    if l.closed[n] == nil and not l.complete then
      names[#names + 1] = field(l, n)
      numbers[#numbers + 1] = n
    end
  end
  if #names == 0 then return end
  local values = redis.call('HMGET', c.key, unpack(names))
  for i, n in ipairs(numbers) do l.closed[n] = values[i] and tally(l, n, values[i]) end
end

-- Has a field written.
local function put(h, name, raw)
  h.written[#h.written + 1] = name
  h.written[#h.written + 1] = raw
end

-- Writes the history. Writes that need memory come first: without it nothing at
-- all is changed. Without a time at which the key expires, it does when it would have.
local function save(c, expires)
  local h, gone = c.own, {}
  local coarse, fine = h.coarse.open, h.fine.open
  if fine then
    h.stale.open, h.stale.kept = nil, nil
    put(h, 'open', string.format('%d:%d:%d:%d', coarse.at, coarse.count, fine.at, fine.count))
    local kept = string.format('%d:%d:%d:%d:%d:%d', h.coarse.length, h.fine.length, h.since, h.window, h.till, h.has_stale and 1 or 0)
    if kept ~= h.kept then put(h, 'kept', kept) end
  end
  for name in pairs(h.stale) do gone[#gone + 1] = name end
  call('HSET', c.key, h.written)
  call('HDEL', c.key, gone)
  if expires then redis.call('PEXPIREAT', c.key, expires) end
  h.written, h.stale = {}, {}
end

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
    put(h, field(l, current), value(l, l.open))
    h.stale[field(l, current)] = nil
  end
  l.open = {at = at, count = n}
  return false
end

-- Forgets closed slice n.
local function forget(h, l, n)
  l.closed[n] = false
  h.stale[field(l, n)] = true
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

local function earlier(a, b) return a.at < b.at end

-- Reads the fine slices that are not forgotten, oldest first, and the names of all
-- fields.
local function load_all(c, h)
  local raw, all, names = redis.call('HGETALL', c.key), {}, {}
  for i = 1, #raw, 2 do
    names[raw[i]] = true
    local n = tonumber(raw[i])
    if n then
      local t = tally(h.fine, n, raw[i + 1])
      if t.at >= h.since then all[#all + 1] = t end
    end
  end
  all[#all + 1] = h.fine.open
  table.sort(all, earlier)
  return all, names
end

-- Whether the clock has stepped back since the last unit.
local function stepped(h, now)
  return h.fine.open and math.max(h.fine.open.at, h.since) > now
end

-- Books every slice anew in a new history, less back units of the slice that counts
-- the time at. The second value says whether there is one. h is used up.
local function refit(c, h, now, at, back)
  local fit = history(c.option[1], c.option[2], math.min(h.since, now))
  fit.window, fit.till = h.window, h.till
  local loaded, names = load_all(c, h)
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
  local h = open(c)
  c.stepped = h and stepped(h, now)
  if not h then return history(c.option[1], c.option[2], now) end
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

-- Adds n units at now, after it dropped the slices that nobody looks at any more.
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

-- Returns the number of the latest closed slice from first to last that has units at since
-- or later, and that slice; nil if no slice has.
local function latest(c, l, first, last, since)
  fetch(c, l, first, last)
  for n = last, first, -1 do
    local t = l.closed[n]
    if t and t.at >= since then return n, t end
  end
end

-- Makes the latest closed slices the open ones, in place of those that have no units any
-- more. Returns whether there are any.
local function open_latest(c, h, is_empty)
  local coarse, fine = h.coarse, h.fine
  local parts = coarse.length / fine.length
  local c_number = number(coarse, coarse.open.at)
  if is_empty then
    local n, t = latest(c, coarse, number(coarse, h.since), c_number - 1, -math.huge)
    if not n then return false end
    forget(h, coarse, n)
    coarse.open, c_number = t, n
  end
  local n, t = latest(c, fine, c_number * parts, math.min(c_number * parts + parts, number(fine, fine.open.at)) - 1, h.since)
  if not n then return false end
  forget(h, fine, n)
  fine.open = t
  return true
end

-- Writes closed slice n.
local function put_closed(h, l, n, t) put(h, field(l, n), value(l, t)) end

-- Takes n units from the fine slice that counts a time, and from its coarse one. Returns
-- whether there is one, and whether others are left.
local function take_back(c, h, at, n)
  local coarse, fine = h.coarse, h.fine
  local f, last = number(fine, at), number(fine, fine.open.at)
  if f > last then return false end
  fetch(c, fine, f, f)
  local t = f == last and fine.open or fine.closed[f]
  if not t or at > t.at or t.at < h.since then return false end
  local k = number(coarse, at)
  local is_open = k == number(coarse, coarse.open.at)
  fetch(c, coarse, k, k)
  local whole = is_open and coarse.open or coarse.closed[k]
  local back = math.min(t.count, n)
  t.count = t.count - back
  whole.count = whole.count - back
  if t.count > 0 then
    if f < last then put_closed(h, fine, f, t) end
    if not is_open then put_closed(h, coarse, k, whole) end
    return true, true
  end
  -- The fine slice is gone. The coarse one begins with the next one, if there is any.
  local parts, first = coarse.length / fine.length
  fetch(c, fine, k * parts, k * parts + parts - 1)
  for i = k * parts, k * parts + parts - 1 do
    local other = i == last and fine.open or fine.closed[i]
    if i ~= f and other and other.at >= h.since then
      first = other
      break
    end
  end
  if first then
    whole.at = first.at
    if not is_open then put_closed(h, coarse, k, whole) end
  elseif not is_open then
    forget(h, coarse, k)
  end
  if f < last then
    forget(h, fine, f)
    return true, true
  end
  return true, open_latest(c, h, not first)
end

local function settle(c, now, at, delta)
  if delta > 0 then
    load(c, now)
    add(c, now, delta)
    return
  end
  local h = open(c)
  if not h then return end
  c.own, c.stepped = h, stepped(h, now)
  if c.stepped or h.coarse.length ~= c.option[1] or h.fine.length ~= c.option[2] then
    local found
    c.own, found = refit(c, h, now, at, -delta)
    if found or c.stepped then save(c) end
    return
  end
  local found, rest = take_back(c, h, at, -delta)
  if found and rest then
    save(c)
  elseif found then
    redis.call('UNLINK', c.key)
  end
end

return {look = look, spend = spend, explain = explain, settle = settle}
