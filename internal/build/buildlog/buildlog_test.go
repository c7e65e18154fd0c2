package buildlog

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"
)

// recorder collects lines. A timer may add one at any time.
type recorder struct {
	mu    sync.Mutex // guards lines
	lines []Line
}

func (r *recorder) add(l Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, l)
}

func (r *recorder) all() []Line {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// record returns a Log and its recorder. On a slow machine, no pause cuts a line unless the test sets Silence.
func record(c Config) (*Log, *recorder) {
	r := &recorder{}
	c.Line = r.add
	c.Silence = cmp.Or(c.Silence, time.Hour)
	return New(c), r
}

func last(r *recorder) Line { return r.all()[len(r.all())-1] }

func messages(lines []Line) (all []string) {
	for _, l := range lines {
		all = append(all, l.Message)
	}
	return all
}

func write(t testing.TB, w io.Writer, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if n, err := io.WriteString(w, s); n != len(s) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		in   string
		want []Line
	}{
		"plain":               {"a\n\nb", []Line{{Message: "a"}, {}, {Message: "b"}}},
		"CRLF":                {"a\r\nb\r\r\n", []Line{{Message: "a"}, {Message: "b"}}},
		"tab and spaces stay": {"\ta  \n", []Line{{Message: "\ta  "}}},
		"progress":            {"10%\r20%\r30%\ndone\n", []Line{{Message: "30%"}, {Message: "done"}}},
		"erased":              {"wait\r\x1b[Kdone\n", []Line{{Message: "done"}}},
		"yarn's progress": {
			"[1/4]\x1b[2K\x1b[1G\x1b[32msuccess\x1b[39m Saved\n",
			[]Line{{Message: "success Saved", Raw: "\x1b[32msuccess\x1b[39m Saved\x1b[0m"}},
		},
		"colors":           {"\x1b[1;31mred\x1b[0m ok\n", []Line{{Message: "red ok", Raw: "\x1b[1;31mred\x1b[0m ok"}}},
		"open color ends":  {"\x1b[38;2;1;2;3mx\ny\n", []Line{{Message: "x", Raw: "\x1b[38;2;1;2;3mx\x1b[0m"}, {Message: "y"}}},
		"only SGR is kept": {"\x1b[2J\x1b[10;3Ha\x1b[>4m\x1b[?25lb\x1b7\x1b(0c\n", []Line{{Message: "abc"}}},
		"link":             {"\x1b]8;;https://x.test\x07text\x1b]8;;\x1b\\!\n", []Line{{Message: "text!"}}},
		"title":            {"\x1b]0;title\x07a\x9b31mb\n", []Line{{Message: "a\uFFFD31mb"}}},
		"C1 in UTF-8":      {"a\u009b31mb\u009d0;t\x07c\n", []Line{{Message: "abc", Raw: "a\x1b[31mbc\x1b[0m"}}},
		"unfinished sequence": {
			"a\x1b]0;never ends\nb\x1bPq\nc\x1b[12\nd",
			[]Line{{Message: "a"}, {Message: "b"}, {Message: "c"}, {Message: "d"}},
		},
		"controls":       {"a\x00b\x07c\x7fd\x0be\n", []Line{{Message: "abcde"}}},
		"backspace":      {"50%\b\b\b60%\n", []Line{{Message: "60%"}}},
		"invalid UTF-8":  {"a\xffb\xe2\x82c\xf0\x9f\x98\n", []Line{{Message: "a\uFFFDb\uFFFDc\uFFFD"}}},
		"wide":           {"äöü — 日本 🚀\n", []Line{{Message: "äöü — 日本 🚀"}}},
		"markup is text": {"<img src=x onerror=alert(1)>\n", []Line{{Message: "<img src=x onerror=alert(1)>"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, chunk := range []int{1, 2, 3, 7, 1000} {
				l, got := record(Config{})
				for in := tt.in; in != ""; {
					n := min(chunk, len(in))
					write(t, l, in[:n])
					in = in[n:]
				}
				l.Close()
				lines := got.all()
				for i := range lines {
					lines[i].Level = ""
				}
				if d := gocmp.Diff(tt.want, lines); d != "" {
					t.Errorf("in writes of %d bytes (-want +got):\n%s", chunk, d)
				}
			}
		})
	}
}

// A slow line stays one line: tools print "Building" and, much later, "done".
func TestSlowLineIsNotCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		l := New(Config{Line: r.add})
		write(t, l, "Building")
		for range 20 {
			time.Sleep(5 * time.Second)
			write(t, l, ".")
		}
		write(t, l, " done\n")
		l.Close()
		if d := gocmp.Diff([]string{"Building" + strings.Repeat(".", 20) + " done"}, messages(r.all())); d != "" {
			t.Error(d)
		}
	})
}

// Concurrent writes of two processes arrive completely, one line at a time.
func TestConcurrentWriters(t *testing.T) {
	t.Parallel()
	busy, n := false, 0
	l := New(Config{Silence: time.Microsecond, Line: func(Line) { // the race detector checks accesses to busy
		if busy {
			t.Error("two lines were written at the same time")
		}
		busy = true
		n++
		busy = false
	}})
	var wg sync.WaitGroup
	for _, w := range []io.Writer{l, l} {
		wg.Go(func() {
			for i := range 500 {
				fmt.Fprintf(w, "line %d\nunfin", i)
				fmt.Fprintf(w, "ished\n")
			}
		})
	}
	wg.Go(func() { l.Excerpt(3); l.Cause(Failure{}) })
	wg.Wait()
	l.Close()
	if n < 2000 {
		t.Errorf("%d lines, want 2000 at least", n)
	}
	if _, err := l.Write([]byte("x")); err != io.ErrClosedPipe {
		t.Errorf("write after Close: %v", err)
	}
}

func TestSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, got := record(Config{Secrets: []string{"hunter2hunter2"}, Silence: 100 * time.Millisecond})
		write(t, l, "Password? ")
		time.Sleep(99 * time.Millisecond)
		synctest.Wait()
		if len(got.all()) != 0 {
			t.Fatalf("passed on before the silence: %q", messages(got.all()))
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if d := gocmp.Diff([]string{"Password? "}, messages(got.all())); d != "" {
			t.Fatal(d)
		}
		for _, b := range "it is hunter2hunter2!" { // each byte arrives after the pause that would end the line
			write(t, l, string(b))
			time.Sleep(200 * time.Millisecond)
		}
		write(t, l, "\n\n")
		l.Close()
		if s := strings.Join(messages(got.all()), ""); s != "Password? it is [secret]!" {
			t.Errorf("got %q", s)
		}
		if m := last(got).Message; m != "" {
			t.Errorf("the empty line is %q", m)
		}
	})
}

func TestProgressIsRateLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, got := record(Config{Silence: 100 * time.Millisecond})
		for i := range 1000 { // ten seconds
			write(t, l, fmt.Sprintf("\r%d%%", i/10))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(5 * time.Second) // the last state is written once
		write(t, l, "\rready\n")
		l.Close()
		if n := len(got.all()); n < 4 || n > 8 {
			t.Errorf("%d states passed on: %q", n, messages(got.all()))
		}
		if m := last(got).Message; m != "ready" {
			t.Errorf("last line is %q", m)
		}
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, got := record(Config{MaxLines: 30, Rate: 10})
		for range 4 {
			write(t, l, strings.Repeat("x\n", 20))
			time.Sleep(time.Second)
		}
		write(t, l, "Error: the reason\n")
		l.Close()
		var x, notes int
		for _, m := range messages(got.all()) {
			switch m {
			case "x":
				x++
			case "[10 lines dropped: more than 10 in one second]", "[log limit of 30 lines reached: the rest is not stored]":
				notes++
			default:
				t.Errorf("unexpected line %q", m)
			}
		}
		if x != 30 || notes != 3 {
			t.Errorf("%d lines and %d notes, want 30 and 3", x, notes)
		}
		if d := gocmp.Diff([]string{"Error: the reason"}, l.Excerpt(5)); d != "" {
			t.Error(d)
		}
	})
}

// An endless line is cut into bounded pieces, and the held-back part is bounded, too.
func TestEndlessLine(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("a", 30) + "b"
	l, got := record(Config{MaxLine: 100, Secrets: []string{secret, strings.Repeat("0123456789", 500)}})
	long := strings.Repeat("ä日🚀x", 50) + strings.Repeat("a", 5000) + secret + strings.Repeat("z", 95) + strings.Repeat(secret, 50)
	for range 10 {
		write(t, l, long)
		if n := cap(l.out.line); n > 16<<10 {
			t.Fatalf("%d bytes held", n)
		}
	}
	l.Close()
	all := ""
	for _, m := range messages(got.all()) {
		if len(m) > 100*len(redacted)/minSecret || !utf8.ValidString(m) {
			t.Fatalf("line %q", m)
		}
		all += m
	}
	if strings.Contains(all, secret) {
		t.Error("the log contains the secret")
	}
	clean := strings.ReplaceAll(all, redacted, "")
	if n := strings.Count(clean, "ä日🚀x"); n != 500 {
		t.Errorf("%d of 500 characters", n)
	}
	if n := strings.Count(clean, "z"); n != 950 {
		t.Errorf("%d of 950 characters", n)
	}
}

// Valid text without control characters and secrets is unchanged, and the output is always valid text without control
// characters.
func FuzzPlain(f *testing.F) {
	f.Add("hello\nworld\n\n", 3)
	f.Add("\x1b[31mred\x1b[0m\r\n\xff\u009b1m\u2028\n", 1)
	f.Add(strings.Repeat("long äöü ", 100), 50)
	f.Add("a\rb\x1b[2K\b\b\x1b]0;x\nz", 2)
	f.Fuzz(func(t *testing.T, in string, chunk int) {
		l, got := record(Config{MaxLine: 64, MaxLines: 1 << 30, Rate: 1 << 30, Silence: time.Hour})
		for rest := in; rest != ""; {
			n := min(max(chunk, 1), len(rest))
			write(t, l, rest[:n])
			rest = rest[n:]
		}
		l.Close()
		for _, line := range got.all() {
			if i := strings.IndexFunc(line.Message, func(r rune) bool { return unicode.IsControl(r) && r != '\t' }); i >= 0 ||
				!utf8.ValidString(line.Message) {
				t.Fatalf("message %q", line.Message)
			}
			if !utf8.ValidString(line.Raw) || line.Raw == "" != !strings.Contains(line.Raw, "\x1b[") {
				t.Fatalf("raw %q", line.Raw)
			}
			if line.Raw != "" && shown(line.Raw) != line.Message {
				t.Fatalf("raw %q shows other than %q", line.Raw, line.Message)
			}
			if len(line.Message) > 64 {
				t.Fatalf("%d bytes", len(line.Message))
			}
		}
		plain := utf8.ValidString(in) &&
			!strings.ContainsFunc(in, func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' })
		if plain && strings.Join(messages(got.all()), "") != strings.ReplaceAll(in, "\n", "") {
			t.Fatalf("%q became %q", in, messages(got.all()))
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	var secrets []string
	for i := range 20 {
		secrets = append(secrets, fmt.Sprintf("sk_live_%d_%xTöken/+ %d", i, i*7919*104729, i))
	}
	var text bytes.Buffer
	for i := 0; text.Len() < 10<<20; i++ {
		fmt.Fprintf(
			&text,
			"dist/assets/index-%x.js   %d.%02d kB │ gzip: %d kB built in node_modules/.pnpm/react-dom@18.3.1\n",
			i*2654435761,
			i%900,
			i%100,
			i%300,
		)
	}
	l := New(Config{Secrets: secrets, Line: func(Line) {}, MaxLines: 1 << 60, Rate: 1 << 60})
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		for p := text.Bytes(); len(p) > 0; {
			n := min(32<<10, len(p))
			l.Write(p[:n])
			p = p[n:]
		}
	}
	b.ReportMetric(float64(len(l.hide.nodes)), "nodes")
}
