-- logchange: changes records that are there: see logring.lua. Few decisions need that.
--
-- pull_back(c, now)
--         Moves everything that lies in the future to now.
-- rebase(c, now)
--         Makes room for running totals: forgets what is not read any more, and counts
--         from there.
-- give_back(c, at, n)
--         Gives back up to n of the units that were spent at a time.
local chunks, rings, pages = module('logchunk'), module('logring'), module('logpages')
local read_chunk, write_chunk = chunks.read, chunks.write
local base, begin, load, locate, search = rings.base, rings.begin, rings.load, rings.locate, rings.search
local put_alone = rings.put_alone
local forget, lower, put_newest = pages.forget, pages.lower, pages.put_newest
local records, write_records, rest, since = pages.records, pages.write_records, pages.rest, pages.since
local call, sub, min = redis.call, string.sub, math.min

local function pull_back(c, now)
  local l = c.own.log
  local total = l.total
  local _, before, i = locate(c, now, 0)
  local all = records(c, i)
  while all[1] and all[#all].at >= now do table.remove(all) end
  all[#all + 1] = {at = now, units = total - before}
  local tail = write_records(all, total, 1, #all, l.window, l.till)
  if i == 0 then
    put_alone(c, tail)
  else
    l.pages = i
    put_newest(c, tail)
  end
  load(c)
end

local function rebase(c, now)
  local l = c.own.log
  local at, units, first, i = locate(c, now - c.keep + 1, 0)
  if first == l.pages then
    put_alone(c, since(rest(l.tail, at, units, i), units))
  else
    forget(c, first, at, units, i)
    lower(c, 0, units)
    l.before = 0
    put_newest(c, l.tail)
  end
  load(c)
end

-- Returns a chunk as the newest one, which has the horizon.
local function as_newest(c, text)
  local at, total, units, i, span, inside = read_chunk(text)
  return write_chunk(at, total, units, span, inside, sub(text, i), c.own.log.window, c.own.log.till)
end

-- Removes the newest chunk: what it held is given back. total is what is left.
local function drop_newest(c, total)
  local l = c.own.log
  if l.pages == 0 then
    call('UNLINK', c.key)
    return
  end
  local at, before, from, text, _, up_to = begin(c, 0)
  if up_to == total then
    put_alone(c, as_newest(c, rest(since(text, -base(c, 0)), at, before, from)))
    return
  end
  local i = search(c, 0, total - 1)
  text = as_newest(c, since(rings.chunk_of(c, i), -base(c, i)))
  l.pages = i
  put_newest(c, text)
end

local function give_back(c, at, n)
  local found, _, i = locate(c, at, 0)
  if found ~= at then return end
  local l = c.own.log
  local all, total = records(c, i)
  local k = 1
  while all[k].at ~= at do k = k + 1 end
  local back, last = min(all[k].units, n), all[#all].at
  all[k].units = all[k].units - back
  if all[k].units == 0 then table.remove(all, k) end
  if i == l.pages then
    if not all[1] then
      drop_newest(c, total - back)
    elseif i == 0 then
      put_alone(c, write_records(all, total - back, 1, #all, l.window, l.till))
    else
      put_newest(c, write_records(all, total - back, 1, #all, l.window, l.till))
    end
    return
  end
  local text
  if all[1] then
    text = write_records(all, total - base(c, i), 1, #all)
  else
    text = pages.empty(last, total - base(c, i))
  end
  pages.put_page(c, i, text)
  lower(c, i, back)
  if i > 0 then
    put_newest(c, l.tail)
  elseif all[1] then
    local _, _, _, skip = read_chunk(text)
    l.skip, l.oldest = skip, all[1].at
    put_newest(c, l.tail)
  else
    local first = search(c, 0, l.before)
    local oldest, before, skip = begin(c, first)
    if first == l.pages then
      put_alone(c, l.tail)
    else
      forget(c, first, oldest, before, skip)
      put_newest(c, l.tail)
    end
  end
end

return {pull_back = pull_back, rebase = rebase, give_back = give_back}
