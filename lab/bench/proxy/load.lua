-- wrk's script: it sends a body from a file, and prints a line of JSON. With variants, the heads differ as clients' do:
-- each has a different traceparent, request id and length. They are generated before the measurement.
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
