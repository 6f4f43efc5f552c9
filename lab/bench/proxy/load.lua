-- What wrk sends, the body from a file, and what it prints: a line of JSON. With a number of variants, heads differ as
-- clients' do: each has a traceparent, a request id and a length of its own. They are made beforehand, so that making
-- them takes no time of the measurement.
local function hex(length)
  local digits = {}
  for index = 1, length do digits[index] = string.format("%x", math.random(0, 15)) end
  return table.concat(digits)
end

function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  local body = file:read("*a")
  file:close()
  local variants = tonumber(arguments[2])
  wrk.method = "POST"
  requests, last = {}, 0
  math.randomseed(1)
  for index = 1, math.max(1, variants) do
    if variants > 0 then
      wrk.headers["traceparent"] = "00-" .. hex(32) .. "-" .. hex(16) .. "-00"
      wrk.headers["x-request-id"] = hex(32)
    end
    requests[index] = wrk.format(nil, nil, nil, body .. string.rep(" ", variants > 0 and index % 61 or 0))
  end
end

function request()
  last = last % #requests + 1
  return requests[last]
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format('{"requests": %d, "seconds": %.6f, "errors": %d, "p50": %d, "p99": %d}\n',
    summary.requests, summary.duration / 1e6, failed, latency:percentile(50), latency:percentile(99)))
end
