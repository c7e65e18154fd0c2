package applog

import "testing"

// The level of a line must be the one that its logger gives, in JSON or at the beginning of the line. The content of
// the message must not matter.
func TestLevel(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ stream, text, want string }{
		{"stdout", `{"level":50,"time":1700000000000,"pid":1,"hostname":"x","msg":"down"}`, "error"}, // pino
		{"stdout", `{"level":60,"msg":"x"}`, "error"},
		{"stdout", `{"level":40,"msg":"an error"}`, "warn"},
		{"stdout", `{"level":30,"msg":"error"}`, "info"},
		{"stderr", `{"level":30,"msg":"fine"}`, "info"},
		{"stdout", `{"level":20,"msg":"x"}`, "debug"},
		{"stdout", `{"level":10,"msg":"x"}`, "debug"},
		{"stdout", `{"name":"app","hostname":"h","pid":1,"level":50,"msg":"x","v":0}`, "error"}, // bunyan
		{"stdout", `{"level":"error","message":"x"}`, "error"},                                  // winston
		{"stdout", `{"message":"an error","level":"info"}`, "info"},
		{"stdout", `{"level":"silly","message":"x"}`, "debug"},
		{"stdout", `{"level":"http","message":"x"}`, "info"},
		{"stderr", `{"level":"dpanic","ts":1.7e9,"caller":"a.go:1","msg":"x"}`, "error"}, // zap
		{"stderr", `{"level":"warn","ts":1.7e9,"msg":"fatal"}`, "warn"},
		{"stdout", `{"message":"x","context":{"level":50},"level":400,"level_name":"ERROR","channel":"app"}`, "error"}, // Monolog
		{"stdout", `{"message":"x","level":300,"level_name":"WARNING"}`, "warn"},
		{"stdout", `{"message":"x","level":250,"level_name":"NOTICE"}`, "info"},
		{"stdout", `{"message":"x","level":200}`, "info"},
		{"stdout", `{"message":"x","level":550}`, "error"},
		{"stdout", `{"message":"x","level":100}`, "debug"},
		{"stdout", `{"severity":"ERROR","message":"x"}`, "error"},
		{"stdout", `{"context":{"level":50},"msg":"x"}`, "info"},
		{"stdout", `{"level":50,"msg":"it was cut`, "error"},
		{"stdout", `{"level":`, "info"},
		{"stdout", `{not JSON, error`, "info"},

		{"stdout", "0 errors found", "info"},
		{"stdout", "Compiled without errors or warnings", "info"},
		{"stdout", "GET /error 200", "info"},
		{"stdout", "The debugger is off", "info"},
		{"stdout", "panic button pressed", "info"},
		{"stdout", "error: down", "error"},
		{"stdout", "\x1b[31merror\x1b[39m: down", "error"},
		{"stdout", "[error] down", "error"},
		{"stdout", "ERROR down", "error"},
		{"stdout", "2026-01-02T03:04:05.678Z ERROR down", "error"},
		{"stdout", "2026-01-02 03:04:05,678 WARNING slow", "warn"},
		{"stdout", "2026/01/02 03:04:05 INFO an error", "info"},
		{"stderr", "2026/01/02 03:04:05 INFO fine", "info"},
		{"stdout", "[2026-01-02T03:04:05.678901+00:00] production.ERROR: down {\"x\":1}", "error"}, // Monolog, Laravel
		{"stdout", "[2026-01-02 03:04:05] local.INFO: an error", "info"},
		{"stdout", "[Nest] 12  - 01/02/2026, 3:04:05 AM   ERROR [Handler] down", "error"},
		{"stdout", "[Nest] 12  - 01/02/2026, 3:04:05 AM     LOG [Handler] an error", "info"},
		{"stdout", "time=2026-01-02T03:04:05Z level=error msg=down", "error"},
		{"stdout", `ts=1 level="debug" msg=x`, "debug"},
		{"stderr", "TypeError: x is not a function", "error"},
		{"stderr", "Error [ERR_X]: down", "error"},
		{"stderr", "Uncaught Exception: x", "error"},
		{"stderr", "panic: runtime error", "error"},
		{"stderr", "PHP Fatal error:  Uncaught Error: x", "error"},
		{"stderr", "PHP Warning:  Undefined variable", "warn"},
		{"stderr", "(node:12) Warning: x", "warn"},
		{"stderr", "npm ERR! code 1", "error"},
		{"stderr", "anything", "warn"},
		{"stdout", "", "info"},

		{"system", "The application exited: out of memory", "warn"}, // what the service writes about a crash
		{"system", "Restarted", "info"},
	} {
		if got := levelOf(tt.stream, tt.text); got != tt.want {
			t.Errorf("%s %q is %q, want %q", tt.stream, tt.text, got, tt.want)
		}
	}
}
