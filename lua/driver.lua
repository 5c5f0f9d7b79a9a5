-- The driver: decides on requests with the algorithms, all or nothing.
--
-- KEYS    one key per charge
-- ARGV[1] now in ms, or "" for the clock of this server
-- ARGV[2] take | peek | settle | reset
-- ARGV    settle only: at (ms), delta
-- ARGV    per charge: algorithm, cost, id (unique), number of options,
--         option..., number of policies, (limit, window in ms)...,
--         number of fields' words, (name, value)...: for stream only
-- Reply   integers: now, then for take and peek five per policy: allowed (0 or
--         1), remaining, retry after (ms, -1: never), reset after (ms),
--         effective window (ms)
--
-- The algorithms stand above this file, in the table `algorithms` by name. Each
-- has look, spend, explain and settle, with the meaning of window.State.

local next_arg = 0

local function arg()
  next_arg = next_arg + 1
  return ARGV[next_arg]
end

local function number() return tonumber(arg()) end

local function read_charge(key)
  local c = {
    key = key, algorithm = algorithms[arg()], cost = number(), id = arg(),
    option = {}, limit = {}, window = {}, longest = 0, fields = {},
    allowed = {}, remaining = {}, retry = {}, reset = {}, effective = {},
  }
  for i = 1, number() do c.option[i] = number() end
  c.policies = number()
  for j = 1, c.policies do
    c.limit[j], c.window[j] = number(), number()
    c.longest = math.max(c.longest, c.window[j])
  end
  for i = 1, number() do c.fields[i] = arg() end
  return c
end

local function decide(now, take)
  local charges, reply, fits = {}, {now}, true
  for i, key in ipairs(KEYS) do
    local c = read_charge(key)
    charges[i] = c
    if not c.algorithm.look(c, now) then fits = false end
  end
  for _, c in ipairs(charges) do
    if take and fits and c.cost > 0 then
      c.algorithm.spend(c, now)
    else
      c.algorithm.explain(c, now, take)
    end
    for j = 1, c.policies do
      local n = #reply
      reply[n + 1] = c.allowed[j] and 1 or 0
      reply[n + 2] = c.remaining[j]
      reply[n + 3] = c.retry[j]
      reply[n + 4] = c.reset[j]
      reply[n + 5] = c.effective[j]
    end
  end
  return reply
end

-- The clock is read once: on Redis 7.0 it runs on while a script does.
local now = number()
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local op = arg()
if op == 'take' or op == 'peek' then
  return decide(now, op == 'take')
elseif op == 'settle' then
  local at, delta = number(), number()
  local c = read_charge(KEYS[1])
  c.algorithm.settle(c, now, at, delta)
elseif op == 'reset' then
  redis.call('DEL', KEYS[1])
end
return {now}
