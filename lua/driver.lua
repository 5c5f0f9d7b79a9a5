-- The driver: decides on requests with the algorithms, each of them all or nothing.
--
-- KEYS    one key per charge, request by request
-- ARGV[1] now in ms, or "" for the clock of this server
-- ARGV[2] take | peek | settle | reset
-- ARGV[3] what the names of units begin with (unique)
-- ARGV[4] a list in MessagePack:
--         per charge: number of its definition, below 0 unless it is the last of
--         its request; the definition if the number is new; cost; if packed, the
--         field of the hash at its key; where the algorithm notes fields, number of
--         words, (name, value)...;
--         settle only, of one charge: at (ms), delta.
--         A definition: algorithm, packed (0 or 1; see record.lua), number of
--         options, option..., number of policies, (limit, window in ms)...
-- Reply   integers: now; then, for take and peek, per request five per policy:
--         allowed (0 or 1), remaining, retry after (ms, -1: never), reset after
--         (ms), effective window (ms). Of several requests, one that fails has a
--         single number: -1 if it is as if it had not come, -2 if it may have
--         been charged, -3 likewise, because a command is not allowed
--
-- The algorithms stand above this file, in the table `modules`: functions that
-- return them, so that a call makes only those which it needs. Each has look,
-- spend, explain and settle, with the meaning of window.State, and says whether it
-- names units, and notes fields. Some keep a record, which stands there too. A charge
-- is used again for later requests; look begins anew.

local op, read = ARGV[2], 0
local plan = cmsgpack.unpack(ARGV[4])

local function item()
  read = read + 1
  return plan[read]
end

-- The clock is read once: on Redis 7.0 it runs on while a script does.
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local algorithms = {}

local function read_definition()
  local name, packed, option, limit, window, longest = item(), item() == 1, {}, {}, {}, 0
  algorithms[name] = algorithms[name] or modules[name]()
  for i = 1, item() do option[i] = item() end
  local policies = item()
  for j = 1, policies do
    limit[j], window[j] = item(), item()
    if window[j] > longest then longest = window[j] end
  end
  return {
    algorithm = algorithms[name], names = algorithms[name].names, fields = algorithms[name].fields,
    packed = packed, option = option, policies = policies,
    limit = limit, window = window, longest = longest,
    -- with some slack: never earlier than the history says
    expires = string.format('%d', now + longest + math.min(longest, 100)),
    charges = {},
  }
end

local definitions, charges, keys = {}, {}, 0

-- Names the units of a charge: one character behind the dot in all but large
-- batches, for many units have such a name.
local prefix, char = ARGV[3] .. '.', string.char
local function id(k)
  if k < 64 then return prefix .. char(48 + k) end
  return prefix .. k
end

-- Reads charge i of a request. Returns whether it is the last.
local function read_charge(i)
  read = read + 1
  local k = plan[read]
  local number = k < 0 and -k or k
  local d = definitions[number]
  if not d then
    d = read_definition()
    definitions[number] = d
  end
  local c = d.charges[i]
  if not c then
    c = {
      algorithm = d.algorithm, option = d.option,
      policies = d.policies, limit = d.limit, window = d.window, longest = d.longest,
      expires = d.expires,
      allowed = {}, remaining = {}, retry = {}, reset = {}, effective = {},
    }
    d.charges[i] = c
  end
  keys, read = keys + 1, read + 1
  c.key, c.cost = KEYS[keys], plan[read]
  if d.packed then c.member = item() end
  if d.names then c.id = id(keys) end
  if d.fields then
    c.fields = {}
    for j = 1, item() do c.fields[j] = item() end
  end
  charges[i] = c
  return k > 0
end

local reply, replied, concluding = {now}, 1, false

-- Decides on the first n charges.
local function decide(n)
  local fits = op == 'take'
  concluding = false
  for i = 1, n do
    local c = charges[i]
    if not c.algorithm.look(c, now) then fits = false end
  end
  concluding = true
  for i = 1, n do
    local c = charges[i]
    if fits and c.cost > 0 then
      c.algorithm.spend(c, now)
    else
      c.algorithm.explain(c, now, op == 'take')
    end
    local allowed, remaining, retry, reset, effective = c.allowed, c.remaining, c.retry, c.reset, c.effective
    for j = 1, c.policies do
      reply[replied + 1] = allowed[j] and 1 or 0
      reply[replied + 2] = remaining[j]
      reply[replied + 3] = retry[j]
      reply[replied + 4] = reset[j]
      reply[replied + 5] = effective[j]
      replied = replied + 5
    end
  end
end

-- Whether nothing can have been written when this is the error: it meets the
-- first write already.
local function refused(err)
  local text = type(err) == 'table' and err.err or tostring(err)
  for _, code in ipairs({'OOM ', 'READONLY ', 'MISCONF ', 'NOREPLICAS '}) do
    if string.find(text, code, 1, true) then return true end
  end
  return false
end

-- Whether the user may not run a command. Others may have run before it.
local function forbidden(err)
  local text = type(err) == 'table' and err.err or tostring(err)
  for _, words in ipairs({"can't run this command", 'ACL failure', 'NOPERM '}) do
    if string.find(text, words, 1, true) then return true end
  end
  return false
end

if op == 'reset' then
  read_charge(1)
  if charges[1].member then
    redis.call('HDEL', KEYS[1], charges[1].member)
  else
    redis.call('DEL', KEYS[1])
  end
  return reply
end

local total = #KEYS
while keys < total do
  local n, before, last = 0, replied
  repeat
    n = n + 1
    last = read_charge(n)
  until last
  if op == 'settle' then
    local at, delta = item(), item()
    charges[1].algorithm.settle(charges[1], now, at, delta)
  elseif n == total then
    decide(n) -- the error of a single request is that of the call
  else
    local done, err = pcall(decide, n)
    if not done then
      for i = replied, before + 1, -1 do reply[i] = nil end
      replied = before + 1
      reply[replied] = (not concluding or refused(err)) and -1 or forbidden(err) and -3 or -2
    end
  end
end
return reply
