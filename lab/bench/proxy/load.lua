-- What wrk sends, the body from a file, and what it prints: a line of JSON.
function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  wrk.method = "POST"
  wrk.body = file:read("*a")
  file:close()
  request_text = wrk.format()
end

function request()
  return request_text
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format('{"requests": %d, "seconds": %.6f, "errors": %d, "p50": %d, "p99": %d}\n',
    summary.requests, summary.duration / 1e6, failed, latency:percentile(50), latency:percentile(99)))
end
