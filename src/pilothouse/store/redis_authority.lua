-- The lease authority in Redis: the steps of policy/limits/authority.py, for all reports of one batch at once.
--
-- KEYS[1]   the organisation's memory: incarnation, began, lost
-- KEYS[1+i] the hash of the i-th report's limit: used, charged, returned, period, and a lease "spent refunded held expires" for
--           each worker under "w:" .. worker
-- ARGV      worker, the worker's incarnation, an incarnation for a new memory, term, then 15 values for each report
-- Answer    incarnation, now, then held, left, spent, refunded, used, returned for each report
--
-- Times are microseconds of this server's clock. All numbers are whole and below 2^53, which doubles hold exactly.

local MINUTE, AHEAD_SHARE, AWAY_TERMS = 60000000, 8, 12
local WORKER, THEIRS, FRESH, TERM = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function text(number) return string.format('%.0f', number) end

local function floor_div(a, b) return (a - a % b) / b end

local function charge(tokens, per_minute)
  if per_minute <= 0 then return 0 end
  return -floor_div(-tokens * MINUTE, per_minute)
end

-- The memory, and whether it was lost.
local memory = redis.call('HMGET', KEYS[1], 'incarnation', 'began', 'lost')
local incarnation, began, lost = memory[1], tonumber(memory[2] or '0'), memory[3] == '1'
if not incarnation then
  incarnation, began = FRESH, now
  redis.call('HSET', KEYS[1], 'incarnation', incarnation, 'began', text(began))
end
local was_lost = THEIRS ~= '' and THEIRS ~= incarnation
if was_lost and not lost then
  lost = true
  redis.call('HSET', KEYS[1], 'lost', '1')
end
local may_grant = not lost or now >= began + TERM

local function read_leases(fields)
  local leases = {}
  for i = 1, #fields, 2 do
    local worker = string.match(fields[i], '^w:(.*)$')
    if worker then
      local spent, refunded, held, expires = string.match(fields[i + 1], '^(%S+) (%S+) (%S+) (%S+)$')
      leases[worker] = {
        spent = tonumber(spent), refunded = tonumber(refunded), held = tonumber(held), expires = tonumber(expires)
      }
    end
  end
  return leases
end

local function write_lease(key, worker, lease)
  local numbers = { text(lease.spent), text(lease.refunded), text(lease.held), text(lease.expires) }
  redis.call('HSET', key, 'w:' .. worker, table.concat(numbers, ' '))
end

local answer = { incarnation, text(now) }

for i = 2, #KEYS do
  local at = 4 + (i - 2) * 15
  local kind = ARGV[at + 1]
  local numbers = {}
  for j = 2, 15 do numbers[j] = tonumber(ARGV[at + j]) end
  local limit, burst, period, spent, refunded, mark = unpack(numbers, 2, 7)
  local keep, want, need, ahead, known_spent, known_under_way, known_used, known_returned = unpack(numbers, 8, 15)

  local fields = redis.call('HGETALL', KEYS[i])
  local state = { used = 0, charged = 0, returned = 0, period = 0 }
  for j = 1, #fields, 2 do
    if state[fields[j]] then state[fields[j]] = tonumber(fields[j + 1]) end
  end
  local leases = read_leases(fields)

  local function charge_rate(tokens)
    local moved = charge(tokens, limit)
    state.used = math.max(state.used, now) + moved
    state.charged = state.charged + moved
  end

  -- Of a worker that is not heard of any more all that it held counts as spent; its slots are free.
  for worker, lease in pairs(leases) do
    if lease.expires <= now then
      if kind == 'slots' then
        state.used = state.used - lease.spent
      elseif kind == 'budget' then
        state.used = state.used + lease.held
      elseif lease.held > 0 then
        charge_rate(lease.held)
      end
      if kind == 'slots' or lease.expires + AWAY_TERMS * TERM <= now then
        leases[worker] = nil
        redis.call('HDEL', KEYS[i], 'w:' .. worker)
      elseif lease.held > 0 then
        lease.spent, lease.held = lease.spent + lease.held, 0
        write_lease(KEYS[i], worker, lease)
      end
    end
  end
  if period > state.period then
    state.period = period
    state.used = 0
    -- What was held by workers that are away was of the period before, and so is what they did not spend of it.
    for worker, lease in pairs(leases) do
      if lease.expires <= now then
        leases[worker] = nil
        redis.call('HDEL', KEYS[i], 'w:' .. worker)
      end
    end
  end

  local lease = leases[WORKER]
  if not lease then
    if kind == 'slots' then
      lease = { spent = 0, refunded = 0, held = keep + spent }
    elseif was_lost then
      -- Of a budget the ledger had what was of requests that had ended.
      local charged = known_spent - known_under_way
      lease = { spent = charged, refunded = refunded, held = keep + math.max(0, spent - charged) }
    else
      lease = { spent = spent, refunded = refunded, held = keep }
    end
    leases[WORKER] = lease
  end
  if was_lost and kind == 'rate' then
    state.used = math.max(state.used, known_used + state.charged)
    state.returned = math.max(state.returned, known_returned)
  end

  local more = spent - lease.spent
  lease.spent = spent
  lease.held = math.max(0, math.min(lease.held - more, keep))
  if kind == 'rate' then
    if more > 0 then charge_rate(more) end
    local back = refunded - lease.refunded
    lease.refunded = refunded
    if back > 0 and limit > 0 then
      back = math.min(floor_div(back * MINUTE, limit), mark - state.returned - now)
      if back > 0 then
        state.used = state.used - back
        state.charged = state.charged - back
        state.returned = state.returned + back
      end
    end
  else
    state.used = state.used + more
  end

  local held = 0
  for _, each in pairs(leases) do held = held + each.held end
  local free
  if kind == 'rate' then
    free = burst + floor_div(-math.max(0, state.used - now) * limit, MINUTE) - held
  else
    free = limit - state.used - held
  end
  if may_grant then
    local granted = math.max(0, math.min(want, free))
    if lease.held + granted < need then
      -- Too little for any request: with another worker it may be enough.
      free = free + lease.held
      lease.held, granted = 0, 0
    else
      granted = granted + math.max(0, math.min(ahead, floor_div(free - granted, AHEAD_SHARE)))
    end
    lease.held = lease.held + granted
    free = free - granted
  else
    free = 0
  end

  lease.expires = now + TERM
  write_lease(KEYS[i], WORKER, lease)
  redis.call('HSET', KEYS[i], 'used', text(state.used), 'charged', text(state.charged), 'returned', text(state.returned),
    'period', text(state.period))
  -- As if never used after that: a rate has drained, slots are free, a budget's period is over.
  local lasts = kind == 'budget' and 40 * 86400000 or (math.max(0, state.used - now) + TERM) / 1000 + 60000
  redis.call('PEXPIRE', KEYS[i], text(math.ceil(lasts)))

  for _, number in ipairs({ lease.held, math.max(0, free), lease.spent, lease.refunded, state.used, state.returned }) do
    answer[#answer + 1] = text(number)
  end
end

return answer
