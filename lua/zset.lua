-- zset: the exact sliding-window log. Twin of window/zset.go.
--
-- Key     a sorted set: of the units that a charge spends a member for each one, ten,
--         hundred, ..., so that 203 units are five. Scored with their millisecond, plus
--         2^44 for a ten, twice that for a hundred, ...: those of one size lie together.
--         Members are the charge's id, and id:2, id:3, ...
--         Two more members hold the horizon (see horizon.lua): one that is scored 2^50 + window,
--         and, unless till is 0, t, scored 2^51 + till. The first is named w and the window
--         (w60000) if till is 0 and no member is of more than one unit: its name tells
--         pass/zset.lua all of that. Otherwise its name is w.
-- Options none
--
-- Every function gets a charge as the driver reads it (see driver.lua).
--
-- c.own holds
--   top         the largest p of which there may be members of 10^p units
--   kept, till  the horizon, as it is in Redis; name, of the member that holds kept
local horizon, verdict = module('horizon'), module('verdict')
local unpack, call = table.unpack or unpack, redis.call

-- What lies between the scores of members of 10^p units and of 10^(p+1): 2^44 ms are 557 years, and
-- more than any time and window together.
local apart = 2 ^ 44
local ever = apart - 1 -- the last time that there is
local tills = 2 ^ 51   -- least score of t

-- Times as Redis reads them. The same few come again and again in a batch, and a
-- number takes as long to write out as a command takes to run.
local texts, behind = {}, {}

local function text(score)
  local t = texts[score]
  if not t then
    t = string.format('%d', score)
    texts[score] = t
  end
  return t
end

-- The range of scores behind one.
local function after(score)
  local t = behind[score]
  if not t then
    t = '(' .. text(score)
    behind[score] = t
  end
  return t
end

-- The scores of members of 10^p units that come after a time, and not after another.
local function between(p, from, to)
  return after(p * apart + from), text(p * apart + to)
end

local function expire(c) call('PEXPIREAT', c.key, c.expires) end

-- Reads the horizon, and the largest p of which there may be members of 10^p units.
local function load(c)
  local last, own = call('ZRANGE', c.key, '-3', '-1', 'WITHSCORES'), c.own or {top = 0, kept = 0, till = 0, name = nil}
  c.own, own.top, own.kept, own.till, own.name = own, 0, 0, 0, nil
  for i = #last, 2, -2 do
    local score = tonumber(last[i])
    if score >= tills then
      own.till = score - tills
    elseif score >= zset_windows then
      own.kept, own.name = score - zset_windows, last[i - 1]
    else
      own.top = math.floor(score / apart)
      return
    end
  end
end

-- The units that come after a time, and not after another.
local function units_between(c, from, to)
  local units, size = 0, 1
  for p = 0, c.own.top do
    units = units + size * call('ZCOUNT', c.key, between(p, from, to))
    size = 10 * size
  end
  return units
end

-- The time of the k-th oldest unit after edge, now if that is later, or nothing. If units
-- are of one size, it is found by its rank, and so is the oldest of all; others by bisection.
local function time_of(c, now, edge, k)
  local top = c.own.top
  if top == 0 or k == 1 then
    local oldest
    for p = 0, top do
      local from, to = between(p, edge, ever)
      local at = call('ZRANGEBYSCORE', c.key, from, to, 'WITHSCORES', 'LIMIT', k - 1, 1)[2]
      if at then oldest = math.min(oldest or now, tonumber(at) - p * apart) end
    end
    return oldest
  end
  local before, at = edge, now
  while at - before > 1 do
    local middle = math.floor((before + at) / 2)
    if units_between(c, edge, middle) < k then before = middle else at = middle end
  end
  return at
end

local function count(c, now, j) return units_between(c, now - c.window[j], ever) end

-- The time until the window of policy j holds at most n units; the whole window if those
-- that have to leave it are gone already, as a key is that expires at once.
local function falls(c, now, j, n)
  local window = c.window[j]
  local k = c.limit[j] - c.remaining[j] - n -- units that have to leave
  return window - (now - (time_of(c, now, now - window, k) or now))
end

-- The score of the newest member of 10^p units.
local function newest_of(c, p)
  return call('ZRANGE', c.key, text(p * apart + ever), text(p * apart), 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
end

-- The time of the newest unit, or nil. With repair, what lies in the future is moved to now.
local function newest(c, now, repair)
  local latest
  for p = 0, c.own.top do
    local last = newest_of(c, p)
    if last then
      local at = tonumber(last) - p * apart
      if repair and at > now then
        for _, member in ipairs(call('ZRANGEBYSCORE', c.key, between(p, now, ever))) do
          call('ZADD', c.key, 'XX', text(p * apart + now), member)
        end
        c.expires = horizon.renewed(c, now, c.own.kept, c.own.till)
        expire(c)
      end
      latest = math.max(latest or 0, at)
    end
  end
  return latest
end

-- Writes n units at a time, and what else is in args: scores and members.
local function put(c, at, n, args)
  local others, members, p = #args, 0, 0
  while n > 0 do
    local digit = math.fmod(n, 10)
    local score = text(p * apart + at)
    for _ = 1, digit do
      members = members + 1
      args[others + 2 * members - 1] = score
      args[others + 2 * members] = members == 1 and c.id or c.id .. ':' .. members
    end
    n, p = (n - digit) / 10, p + 1
  end
  call('ZADD', c.key, unpack(args, 1, others + 2 * members))
end

-- Removes n members of 10^p units, the oldest that come after a time.
local function remove(c, p, from, n)
  local before = 0
  if p > 0 or from > 0 then before = call('ZCOUNT', c.key, '-inf', text(p * apart + from)) end
  call('ZREMRANGEBYRANK', c.key, before, before + n - 1)
end

-- Tidies up some of what does not come after a time.
local function tidy(c, edge)
  for p = 0, c.own.top do
    local n = call('ZCOUNT', c.key, between(p, -1, edge))
    if n > 0 then remove(c, p, -1, math.min(n, zset_tidied)) end
  end
end

-- Adds n units at now, and tidies up what is not read any more.
local function add(c, now, n)
  local args, gone, own = {}, {}, c.own
  local window, till = horizon.after(c, now, own.kept, own.till, function() return newest(c) end)
  local name = till == 0 and own.top == 0 and n < 10 and 'w' .. text(window) or 'w'
  if window ~= own.kept or name ~= own.name then args = {text(zset_windows + window), name} end
  if own.name and name ~= own.name then gone = {own.name} end
  if till > 0 and till ~= own.till then
    args[#args + 1] = text(tills + till)
    args[#args + 1] = 't'
  end
  if till == 0 and own.till > 0 then gone[#gone + 1] = 't' end
  put(c, now, n, args)
  if gone[1] then call('ZREM', c.key, unpack(gone)) end
  tidy(c, now - c.keep)
  expire(c)
end

local look, spend, explain = verdict(load, count, falls, newest, add)

local function settle(c, now, at, delta)
  load(c)
  if delta > 0 then
    add(c, now, delta)
    return
  end
  if at < 0 or at > ever then return end
  local there, size, back, top = {}, 1, 0, c.own.top -- members of that time, and the units of them all
  for p = 0, top do
    there[p] = call('ZCOUNT', c.key, between(p, at - 1, at))
    back = back + there[p] * size
    size = size * 10
  end
  back = math.min(back, -delta)
  local gone = {} -- members, the largest first
  for p = top, 0, -1 do
    size = size / 10
    gone[p] = math.min(there[p], math.floor(back / size))
    back = back - gone[p] * size
  end
  if back > 0 then -- a larger one gives place to smaller ones
    local p = 0
    while there[p] == gone[p] do p, size = p + 1, size * 10 end
    gone[p] = gone[p] + 1
    -- After this write, want of memory stops nothing.
    pcall(call, 'PEXPIREAT', c.key, horizon.renewed(c, now, c.own.kept, c.own.till), 'GT')
    put(c, at, size - back, {})
  end
  for p = 0, top do
    if gone[p] > 0 then remove(c, p, at - 1, gone[p]) end
  end
end

return {names = true, look = look, spend = spend, explain = explain, settle = settle}
