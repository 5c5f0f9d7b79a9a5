-- bans: writes who is banned, and tells what has changed since a change that is known. It decides field for field as Table
-- of the Go package internal/bans, which explains the fields of records and rules.
--
-- KEYS[1] a hash: the text of the record of each member, and last: the number of the last change. Members have a blank.
-- KEYS[2] a sorted set: a member with the number of its last change
-- KEYS[3] a sorted set: a member with the time at which its record is forgotten
-- ARGV[1] now in ms, or "" for the clock of this server
-- ARGV[2] the newest change that is known; 0: none
-- ARGV[3] the member that it was of
-- ARGV[4] how many records are kept
-- ARGV[5] how many changes the reply has at most
-- ARGV[6] and on: five for each write: what it does, the member, its former name or "", what the record says of itself,
--         and numbers: those of draw and rule for strike, those of For and Keep for set, a record for merge
-- Reply   now, the change up to which the reply tells, 1 if there are further ones, 1 if the known change is lost; for each
--         write 1 if it changed who is banned, or until when; then the members and their records
--
-- All keys expire a second after the last record is forgotten.
local call, floor, max, min = redis.call, math.floor, math.max, math.min
local key, changes, ends = KEYS[1], KEYS[2], KEYS[3]
local known, most, page = tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5])

local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end

-- Whole numbers above 10^14 lose digits in Lua's own formatting.
local function text(n) return string.format('%.0f', n) end

-- numbers(list) -> a table
local function numbers(list)
  local all = {}
  for n in string.gmatch(list, '%d+') do all[#all + 1] = tonumber(n) end
  return all
end

-- read(text) -> record; nothing if the text is not that of a record
local function read(written)
  local list, about = string.match(written or '', '^([%d ]+)|(.*)$')
  local n = numbers(list or '')
  if #n < 7 then return nil end
  return {
    change = n[1], over = n[2], began = n[3], level = n[4], last = n[5], lifted = n[6], forget = n[7],
    strikes = {unpack(n, 8)}, about = about,
  }
end

-- show(record) -> text
local function show(r)
  local head = string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f', r.change, r.over, r.began, r.level, r.last, r.lifted, r.forget)
  for _, at in ipairs(r.strikes) do head = head .. ' ' .. text(at) end
  return head .. '|' .. r.about
end

local rules = {} -- by their numbers

-- rule_of(list) -> rule, with the length of the ban of each level
local function rule_of(list)
  local rule = rules[list]
  if not rule then
    local n = numbers(list)
    rule = {after = n[2], within = n[3], factor = n[4], max = n[5], halve = n[6], spread = n[7], pardon = n[8], lengths = {n[1]}}
    local length = n[1]
    while rule.factor > 1000 and length < rule.max do
      length = min(rule.max, floor(length * rule.factor / 1000))
      rule.lengths[#rule.lengths + 1] = length
    end
    rule.top, rules[list] = #rule.lengths - 1, rule
  end
  return rule
end

local writes = {}

function writes.strike(r, list)
  local draw, numbers_of_rule = string.match(list, '^(%d+) (.*)$')
  local rule = rule_of(numbers_of_rule)
  local is_banned = now < r.over and r.over - now <= 2 * (r.over - r.began)
  local is_pardoned = r.lifted > 0 and now >= r.lifted and now - r.lifted < rule.pardon
  if is_banned or is_pardoned or r.last > 0 and now >= r.last and now - r.last < 1000 then return false end

  r.is_written = true
  local since = max(r.over, r.last)
  if rule.halve > 0 and now > since then r.level = max(0, r.level - floor((now - since) / rule.halve)) end
  r.level, r.last = min(r.level, rule.top), now
  local strikes = {}
  for _, at in ipairs(r.strikes) do
    if at <= now and at > now - rule.within then strikes[#strikes + 1] = at end
  end
  strikes[#strikes + 1] = now
  local begins = #strikes >= rule.after
  r.strikes = begins and {} or strikes
  if begins then
    local length = rule.lengths[r.level + 1]
    r.began, r.over = now, now + length + floor(length * (rule.spread * draw) / 1000000)
    r.level = min(r.level + 1, rule.top)
  end
  r.forget = max(r.over, now) + max(rule.within, r.level * rule.halve, begins and rule.pardon or 0)
  return begins
end

function writes.set(r, list, about)
  local n = numbers(list)
  r.began, r.over, r.strikes, r.about = now, now + n[1], {}, about
  r.forget = max(r.forget, r.over + n[2])
  return true
end

function writes.lift(r)
  if now >= r.over then return false end
  r.over, r.lifted, r.strikes, r.level = now, now, {}, max(0, r.level - 1)
  return true
end

function writes.merge(r, list)
  local o, before = read(list), r.over
  r.is_written = true
  if o.over > r.over and o.began >= r.lifted then r.over, r.began = o.over, o.began end
  if o.lifted > r.lifted then
    r.lifted = o.lifted
    if r.began < o.lifted then r.over = min(r.over, o.lifted) end
  end
  r.level, r.last, r.forget = max(r.level, o.level), max(r.last, o.last), max(r.forget, o.forget)
  if r.lifted == 0 then
    local all, strikes = r.strikes, {}
    for _, at in ipairs(o.strikes) do all[#all + 1] = at end
    table.sort(all)
    for _, at in ipairs(all) do -- a strike that both have is later in one of them
      if #strikes == 0 or at - strikes[#strikes] >= 1000 then strikes[#strikes + 1] = at end
    end
    r.strikes = {unpack(strikes, max(1, #strikes - 99))}
  end
  if r.about == '' then r.about = o.about end
  return r.over ~= before
end

local function drop(members)
  if #members == 0 then return end
  call('HDEL', key, unpack(members))
  call('ZREM', changes, unpack(members))
  call('ZREM', ends, unpack(members))
end

local head = call('HMGET', key, 'last', ARGV[3])
local last, witness = tonumber(head[1] or 0), tonumber(string.match(head[2] or '', '^%d+'))
local lost = known > 0 and (not witness or witness < known)
if lost then known = 0 end
local reply = {now, known, 0, lost and 1 or 0}

local function note(r)
  last = last + 1
  r.change, r.is_noted, r.is_written = last, true, true
end

-- write(records, operation, member, former, about, list) -> whether who is banned has changed, or until when
local function write(records, op, member, former, about, list)
  local r = records[member]
  if not r and records[former] then
    r = records[former]
    records[member], records[former] = r, false
    drop({former})
    note(r)
  end
  if not r then
    if op == 'lift' then return false end
    r = {change = 0, over = 0, began = 0, level = 0, last = 0, lifted = 0, forget = 0, strikes = {}, about = about}
    records[member] = r
  end
  local done = writes[op](r, list, about)
  if done then note(r) end
  return done
end

-- write_all(from, to) makes the writes of these arguments, with one call for what they read and one for each key that they
-- write.
local function write_all(from, to)
  local members, records = {}, {}
  for i = from, to, 5 do
    members[#members + 1], members[#members + 2] = ARGV[i + 1], ARGV[i + 2]
  end
  for i, found in ipairs(call('HMGET', key, unpack(members))) do records[members[i]] = read(found) or false end
  for i = from, to, 5 do
    reply[#reply + 1] = write(records, unpack(ARGV, i, i + 4)) and 1 or 0
  end
  local texts, forgets, noted = {'last', text(last)}, {}, {}
  for member, r in pairs(records) do
    if r and r.is_written then
      texts[#texts + 1], texts[#texts + 2] = member, show(r)
      forgets[#forgets + 1], forgets[#forgets + 2] = text(r.forget), member
      if r.is_noted then noted[#noted + 1], noted[#noted + 2] = text(r.change), member end
    end
  end
  if #forgets > 0 then
    call('HSET', key, unpack(texts))
    call('ZADD', ends, unpack(forgets))
  end
  if #noted > 0 then call('ZADD', changes, unpack(noted)) end
end

if #ARGV > 5 then
  -- The server has evicted one of the keys: nothing is known for sure.
  if call('HLEN', key) - 1 ~= call('ZCOUNT', ends, '-inf', '+inf') then
    call('UNLINK', key, changes, ends)
  end
  for i = 6, #ARGV, 1000 do write_all(i, min(i + 999, #ARGV)) end
  drop(call('ZRANGEBYSCORE', ends, '-inf', text(now), 'LIMIT', 0, 1000))
  local spare = call('ZCOUNT', ends, '-inf', '+inf') - most
  if spare > 0 then drop(call('ZRANGE', ends, 0, min(spare, 1000) - 1)) end
  local newest = call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2]
  for _, each in ipairs(KEYS) do call('PEXPIREAT', each, text((newest or now) + 1000)) end
end

if last > known then
  local members = call('ZRANGEBYSCORE', changes, '(' .. text(known), '+inf', 'LIMIT', 0, page + 1)
  if #members > page then
    reply[3], members[page + 1] = 1, nil
  end
  local records = #members > 0 and call('HMGET', key, unpack(members)) or {}
  for i, record in ipairs(records) do
    if record then
      reply[2] = tonumber(string.match(record, '^%d*')) or reply[2]
      reply[#reply + 1] = members[i]
      reply[#reply + 1] = record
    end
  end
end
return reply
