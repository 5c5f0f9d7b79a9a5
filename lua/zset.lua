-- zset: the exact sliding-window log. Twin of window/zset.go.
--
-- Key     a sorted set: one member per unit, scored with its millisecond.
--         Members are the charge's id, and id:2, id:3, ... for further units.
-- Options none
--
-- Every function gets a charge as the driver reads it (see driver.lua).
local zset = {names = true}
local unpack, call = table.unpack or unpack, redis.call

local digits = {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}

-- Times as Redis reads them. The same few come again and again in a batch, and a
-- number takes as long to write out as a command takes to run.
local texts, behind = {}, {}

local function text(ms)
  local t = texts[ms]
  if not t then
    t = string.format('%d', ms)
    texts[ms] = t
  end
  return t
end

-- The range of scores behind a time.
local function after(ms)
  local t = behind[ms]
  if not t then
    t = '(' .. text(ms)
    behind[ms] = t
  end
  return t
end

local function expire(c) call('PEXPIREAT', c.key, c.expires) end

-- The time until the k-th oldest unit of policy j leaves its window; the whole
-- window if there is no such unit.
local function leaves(c, now, j, k)
  local window = c.window[j]
  local unit = call('ZRANGEBYSCORE', c.key, after(now - window), '+inf', 'WITHSCORES', 'LIMIT', k - 1, 1)
  if not unit[2] then return window end
  return window - (now - math.min(tonumber(unit[2]), now))
end

-- Adds n units at now, a thousand members a call: unpack has a limit. A number takes as
-- long to write out as the rest of it: one of ten is, but for its last digit.
local function add(c, now, n)
  local at, tens = text(now)
  call('ZADD', c.key, at, c.id)
  local args, size = {}, 0
  for i = 2, n do
    local digit = i % 10
    if not tens or digit == 0 then tens = c.id .. ':' .. (i > 9 and math.floor(i / 10) or '') end
    args[size + 1] = at
    args[size + 2] = tens .. digits[digit]
    size = size + 2
    if size == 2000 or i == n then
      call('ZADD', c.key, unpack(args, 1, size))
      size = 0
    end
  end
  call('ZREMRANGEBYSCORE', c.key, '-inf', text(now - c.longest))
  expire(c)
end

function zset.look(c, now)
  local fits = true
  for j = 1, c.policies do
    local left = c.limit[j] - call('ZCOUNT', c.key, after(now - c.window[j]), '+inf')
    c.allowed[j] = c.cost == 0 or c.cost <= left
    c.remaining[j] = left
    fits = fits and c.allowed[j]
  end
  return fits
end

function zset.spend(c, now)
  add(c, now, c.cost)
  for j = 1, c.policies do
    c.remaining[j] = c.remaining[j] - c.cost
    c.retry[j], c.reset[j], c.effective[j] = 0, c.window[j], c.window[j]
    if c.remaining[j] == 0 then
      c.effective[j] = leaves(c, now, j, 1)
    end
  end
end

function zset.explain(c, now, repair)
  local newest = tonumber(call('ZRANGE', c.key, -1, -1, 'WITHSCORES')[2] or now)
  if newest > now then
    if repair then
      for _, member in ipairs(call('ZRANGEBYSCORE', c.key, after(now), '+inf')) do
        call('ZADD', c.key, 'XX', now, member)
      end
      expire(c)
    end
    newest = now
  end
  for j = 1, c.policies do
    local count = c.limit[j] - c.remaining[j]
    if c.allowed[j] then
      c.retry[j] = 0
    elseif c.cost > c.limit[j] then
      c.retry[j] = -1
    else
      c.retry[j] = leaves(c, now, j, c.cost - c.remaining[j])
    end
    c.reset[j] = 0
    if count > 0 then
      c.reset[j] = c.window[j] - (now - newest)
    end
    c.effective[j] = leaves(c, now, j, math.max(1, 1 - c.remaining[j]))
    c.remaining[j] = math.max(0, c.remaining[j])
  end
end

function zset.settle(c, now, at, delta)
  if delta > 0 then
    add(c, now, delta)
    return
  end
  local time = text(at)
  local units = math.min(-delta, call('ZCOUNT', c.key, time, time))
  if units > 0 then
    local first = call('ZCOUNT', c.key, '-inf', '(' .. time)
    call('ZREMRANGEBYRANK', c.key, first, first + units - 1)
  end
end

return zset
