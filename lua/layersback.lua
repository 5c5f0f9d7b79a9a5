-- layersback: gives back units of layers.lua, in slices of the lengths of the options.
--
-- take_back(c, h, at, n) -> found, left
--         takes up to n units from the fine slice that counts a time, and from its coarse one;
--         whether there is one, and whether others are left
local histories = module('layershistory')
local fetch, forget, number, put_slice = histories.fetch, histories.forget, histories.number, histories.put_slice

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
    if f < last then put_slice(h, fine, f, t) end
    if not is_open then put_slice(h, coarse, k, whole) end
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
    if not is_open then put_slice(h, coarse, k, whole) end
  elseif not is_open then
    forget(h, coarse, k)
  end
  if f < last then
    forget(h, fine, f)
    return true, true
  end
  return true, open_latest(c, h, not first)
end

return {take_back = take_back}
