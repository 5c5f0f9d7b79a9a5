-- The driver: decides on requests with the algorithms, each of them all or nothing.
--
-- KEYS    one key per charge, request by request
-- ARGV[1] now in ms, or "" for the clock of this server
-- ARGV[2] take | peek | settle | settle_each | reset
-- ARGV[3] what the names of units begin with (unique)
-- ARGV[4] a list in MessagePack:
--         number of definitions, and of each: how many items follow, algorithm, packed
--         (0 or 1; see record.lua), how far back it looks in ms, number of policies, (limit,
--         window in ms)..., option...;
--         per group of requests one of
--         n > 0  n requests for a unit of one charge each, of which, unless packed, no two
--                have one key: number of the definition; of each, if packed, the field of
--                the hash at its key
--         n < 0  one request of -n charges, of each: number of its definition; cost; if
--                packed, the field; where the algorithm notes fields, number of words,
--                (name, value)...; settle only, of one charge: at (ms), delta.
-- Reply   integers: now; then, for take and peek, per request one of
--         0 or more  a unit of one policy passes: remaining; reset after and effective
--                    window are the window
--         -4         with_times: a unit of one policy passes: then come remaining, reset
--                    after, effective window
--         -5         in_full: then come five per policy: allowed (0 or 1), remaining, retry
--                    after (ms, -1: never), reset after (ms), effective window (ms)
--         -1         undone: of several requests, this one failed, and was not charged
--         -2         uncertain: of several requests, this one failed, and may have been
--                    charged
--         -3         forbidden: of several requests, this one failed as a command is not
--                    allowed, and may have been charged
--
-- Modules: the algorithms, and what they share, come before this file in the script.
-- `module(name)` makes one when it is first needed. An algorithm has:
--
--   look, spend, explain, settle   with the meaning of window.Algorithm
--   names                          true: its units have names
--   fields                         true: it notes fields
--   holds                          true: it holds units until they are given back; settle has a reply
--
-- A charge c is a table:
--
--   algorithm, option              its module, and the list of its options
--   policies, limit[j], window[j]  number of policies; of each, the limit and the window in ms
--   longest                        ms that it looks back
--   key, member                    of its counter; the field of the hash there, if it is packed
--   cost                           units
--   id                             what the names of its units begin with, if these have names
--   fields                         name, value..., if the algorithm notes fields
--   number, given, back            if the algorithm holds units: see concurrent.lua
--   allowed[j], remaining[j], retry[j], reset[j], effective[j]
--                                  the decision, as in the reply; allowed is a boolean
--   own                            nil at first; then a table of the algorithm, whose file lists
--                                  what it holds
--
-- and holds what the headers of horizon.lua and record.lua list. Charges are used again for
-- later requests of the call: look must set all that it or another function reads.
--
-- Quick paths: most requests are for one unit of one policy whose window is the longest of
-- its key. For these an algorithm may have a module pass/<name>, which is a function:
--
--   make(limit, window, now, id, tidies, packed, option...) -> decide, wants_strings
--     id             function that names the unit of a charge, by its number
--     tidies         true: this call removes what is over
--     wants_strings  true: decide gets the string at the key; the strings of all keys of a
--                    group are read together
--
--   decide(key, n, field, text, again)
--     -> remaining                              passes; both times are the window
--     -> remaining, reset, effective            passes
--     -> remaining, reset, effective, retry     is denied
--     -> nil                                    not simple; nothing was written
--     n      number of the charge
--     field  of the hash at the key, if the counter is packed
--     text   string at the key, if wanted
--     again  true: the decision before was on the same counter
--
-- `spending` must be true before the first write of a request.

local op, plan, read, keys = ARGV[2], cmsgpack.unpack(ARGV[4]), 1, 0

-- The clock is read once: on Redis 7.0 it runs on while a script does. By its
-- microseconds, which no client chooses, one call of eight has to tidy up what is over.
local now, tidies = tonumber(ARGV[1]), true
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
  tidies = time[2] % 8 == 0
end

-- Names the units of a charge: one character behind the dot in all but large
-- batches, for many units have such a name.
local prefix, char = ARGV[3] .. '.', string.char
local function id(k)
  if k < 64 then return prefix .. char(48 + k) end
  return prefix .. k
end

local reply, replied, answered = {now, nil}, 1, 1 -- room for the reply to one that passes
local group, unit = 0, 0 -- requests for units that are left of their group, and their definition

-- By definition: pass, the quick path, or false; wants, true if that wants strings; packs, true if its
-- counters are packed (nil: none does, none are).
local pass, wants, packs = {false}

for k = 1, plan[1] do
  local at = read + 1
  read = at + plan[at]
  local own = op == 'take' and plan[at + 4] == 1 and plan[at + 3] == plan[at + 6] and module('pass/' .. plan[at + 1])
  if own then
    local packed, strings = plan[at + 2] == 1
    pass[k], strings = own(plan[at + 5], plan[at + 6], now, id, tidies, packed, (table.unpack or unpack)(plan, at + 7, read))
    if strings then
      wants = wants or {}
      wants[k] = true
    end
    if packed then
      packs = packs or {}
      packs[k] = true
    end
  end
end

-- Decides on requests until the list is empty, or one fails, or, without decide_on_any, one is not simple.
-- What the call has made is handed over: what a function uses of the script itself costs as much as
-- a parameter in ten calls.
local function decide(plan, all, reply, pass, wants, packs, decide_on_any)
  local with_times, in_full = -4, -5 -- see Reply
  local total, strings, before, last = #all, nil, 0, 0 -- strings of the keys behind number before, up to last
  local same_key, same_field, same_unit -- of the decision before, if it was the unit's own
  while keys < total do
    answered, spending = replied, false
    if group == 0 and plan[read + 1] > 0 then
      group, unit, read = plan[read + 1], plan[read + 2], read + 2
    end
    local own, left, reset, effective, retry = group > 0 and pass[unit]
    if own then
      keys, group = keys + 1, group - 1
      local key, field = all[keys]
      if packs and packs[unit] then
        read = read + 1
        field = plan[read]
      end
      local again = key == same_key and field == same_field and unit == same_unit
      if wants and keys > last and wants[unit] and not again then
        strings = redis.call('MGET', (table.unpack or unpack)(all, keys, keys + group))
        before, last = keys - 1, keys + group
      end
      left, reset, effective, retry = own(key, keys, field, strings and strings[keys - before], again)
      same_key, same_field, same_unit = key, field, unit
    end
    if retry then
      reply[replied + 1] = in_full
      reply[replied + 2] = 0
      reply[replied + 3] = left
      reply[replied + 4] = retry
      reply[replied + 5] = reset
      reply[replied + 6] = effective
      replied = replied + 6
    elseif reset then
      reply[replied + 1] = with_times
      reply[replied + 2] = left
      reply[replied + 3] = reset
      reply[replied + 4] = effective
      replied = replied + 4
    elseif left then
      replied = replied + 1
      reply[replied] = left
    else
      if own then
        keys, group = keys - 1, group + 1
        if packs and packs[unit] then read = read - 1 end
      end
      if not decide_on_any then return end
      decide_on_any()
      same_key = nil
    end
  end
end

-- Most calls are only for requests that are simple, and end here. What the others need is made
-- behind: each function costs a call a hundredth of what it takes to decide on one request.
local done, err = true
if op == 'take' then
  done, err = pcall(decide, plan, KEYS, reply, pass, wants, packs)
  if done and keys == #KEYS then return reply end
end

local total = #KEYS
local undone, uncertain, forbidden, in_full = -1, -2, -3, -5 -- see Reply

-- any() -> read_request, decide_next, item
--   read_request() -> charges, n   of the next request
--   decide_next()                  reads the next request, and decides on it
--   item() -> value                the next item of the plan
local function any()
  local known, charges = {}, {}

  local function read_definition(k)
    local at = 2 -- its place in the plan
    for _ = 2, k do at = at + plan[at] + 1 end
    local d = {option = {}, limit = {}, window = {}, charges = {}}
    local items, name, policies = plan[at], plan[at + 1], plan[at + 4]
    d.algorithm, d.packed, d.longest, d.policies = module(name), plan[at + 2] == 1, plan[at + 3], policies
    at = at + 4
    for j = 1, policies do d.limit[j], d.window[j] = plan[at + 2 * j - 1], plan[at + 2 * j] end
    for i = 1, items - 4 - 2 * policies do d.option[i] = plan[at + 2 * policies + i] end
    return d
  end

  local function new_charge(d)
    return {
      algorithm = d.algorithm, option = d.option,
      policies = d.policies, limit = d.limit, window = d.window, longest = d.longest,
      allowed = {}, remaining = {}, retry = {}, reset = {}, effective = {},
      key = nil, cost = nil, member = nil, id = nil, own = nil, keep = nil, expires = nil, -- room, made at once
    }
  end

  local function item()
    read = read + 1
    return plan[read]
  end

  local function read_charge(n, k, cost)
    local d = known[k] or read_definition(k)
    local c = d.charges[n] or new_charge(d)
    keys = keys + 1
    known[k], d.charges[n], charges[n] = d, c, c
    c.key, c.cost = KEYS[keys], cost or item()
    if d.packed then c.member = item() end
    if c.algorithm.names then c.id = id(keys) end
    if c.algorithm.fields then
      c.fields = {}
      for j = 1, item() do c.fields[j] = item() end
    end
    if c.algorithm.holds then c.number, c.given, c.back = item(), item(), item() end
  end

  local function read_request()
    if group > 0 then
      group = group - 1
      read_charge(1, unit, 1)
      return charges, 1
    end
    local n = -item()
    for i = 1, n do read_charge(i, item()) end
    return charges, n
  end

  local function decide_next()
    local _, n = read_request()
    local fits = op == 'take'
    for i = 1, n do
      if not charges[i].algorithm.look(charges[i], now) then fits = false end
    end
    spending = true
    replied = replied + 1
    reply[replied] = in_full
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

  return read_request, decide_next, item
end

if op == 'reset' then
  local c = any()()[1]
  if c.member then
    redis.call('HDEL', c.key, c.member)
  else
    redis.call('UNLINK', c.key)
  end
  return reply
end

-- Returns what says that a request failed. `unwritten` are further words of errors that come
-- before the first write of such a request.
local function failure(err, unwritten)
  local text = type(err) == 'table' and err.err or tostring(err)
  local function says(...)
    for _, words in ipairs({...}) do
      if string.find(text, words, 1, true) then return true end
    end
  end
  -- These meet the first write already, so that nothing can have been written.
  if not spending or says('OOM ', 'READONLY ', 'MISCONF ', 'NOREPLICAS ', unwritten) then return undone end
  -- If the user may not run a command, others may have run before it.
  if says("can't run this command", 'ACL failure', 'NOPERM ') then return forbidden end
  return uncertain
end

if op == 'settle' then
  local next_request, _, next_item = any()
  while keys < total do
    local c = next_request()[1]
    c.algorithm.settle(c, now, next_item(), next_item())
  end
  return reply
end

if op == 'settle_each' then
  local next_request, _, next_item = any()
  spending = true
  while keys < total do
    local c = next_request()[1]
    local done, err = pcall(c.algorithm.settle, c, now, next_item(), next_item())
    replied = replied + 1
    -- One key: the first command meets a wrong type.
    reply[replied] = done and (c.algorithm.holds and err or 0) or failure(err, 'WRONGTYPE ')
  end
  return reply
end

-- Returns an error that names the command that the server does not know, if that is what err says.
-- Servers do not name it. Every command but TIME wants arguments, and does nothing without any.
local function naming(err)
  local function unknown(err)
    local text = type(err) == 'table' and err.err or tostring(err)
    return string.find(text, 'Unknown Redis command', 1, true)
  end
  if not unknown(err) then return err end
  for name in string.gmatch([[
    GET GETRANGE HDEL HGETALL HLEN HMGET HRANDFIELD HSET MGET PEXPIREAT SET SETRANGE TIME UNLINK XADD XDEL XRANGE
    XREVRANGE XSETID XTRIM ZADD ZCOUNT ZRANGE ZRANGEBYSCORE ZREM ZREMRANGEBYRANK ZREMRANGEBYSCORE]], '%u+') do
    local done, said = pcall(redis.call, name)
    if not done and unknown(said) then return "ERR unknown command '" .. name .. "'" end
  end
  return err
end

local _, decide_on_any = any()

while true do
  if not done then
    if answered == 1 and keys == total then error(naming(err), 0) end -- of a single request: that of the call
    for i = replied, answered + 1, -1 do reply[i] = nil end
    replied = answered + 1
    reply[replied] = failure(err)
  end
  if keys == total then return reply end
  done, err = pcall(decide, plan, KEYS, reply, pass, wants, packs, decide_on_any)
end
