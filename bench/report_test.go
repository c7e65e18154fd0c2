package main

import "testing"

// New rows must replace rows of the same kind, and nothing that people wrote may be lost.
func TestUpdate(t *testing.T) {
	t.Parallel()
	before := `# Benchmarks

Last run on 2026-01-01: one core.

## Files

| what | measured | yardstick | ratio | goal | on |
|---|---|---|---|---|---|
| HTTP/2, 4 KiB | 1/s | nginx 2/s | 0.5× | ≥ 1.5×: missed | 2026-01-01 |
| HTTP/2, 4 KiB | 1/s | caddy 1/s | 1× | – | 2026-01-01 |

By hand.

## Empty

What the lines mean:

- **files**: so.
`
	after := `# Benchmarks

Last run on 2026-02-02: two cores.

## Files

| what | measured | yardstick | ratio | goal | on |
|---|---|---|---|---|---|
| HTTP/2, 4 KiB | 3/s | nginx 2/s | 1.5× | ≥ 1.5×: missed | 2026-02-02 |
| HTTP/2, 4 KiB | 1/s | caddy 1/s | 1× | – | 2026-01-01 |
| HTTP/3 | 7/s | – | – | – | 2026-02-02 |

By hand.

## Empty

| what | measured | yardstick | ratio | goal | on |
|---|---|---|---|---|---|
| start | 1 ms | – | – | – | 2026-02-02 |

## New

| what | measured | yardstick | ratio | goal | on |
|---|---|---|---|---|---|
| stop | 2 ms | – | – | < 5 ms | 2026-02-02 |

What the lines mean:

- **files**: so.
`
	got := update(before, []row{
		{part: "Files", what: "HTTP/2, 4 KiB", value: "3/s", yardstick: "nginx 2/s", ratio: "1.5×", goal: "≥ 1.5×"},
		{part: "Files", what: "HTTP/3", value: "7/s"},
		{part: "Empty", what: "start", value: "1 ms"},
		{part: "New", what: "stop", value: "2 ms", goal: "< 5 ms"},
	}, "two cores", "2026-02-02")
	if got != after {
		t.Errorf("got\n%s", got)
	}
}
