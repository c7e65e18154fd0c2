//go:build browser

package dashboard

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/input"

	"slipway/internal/program/runtime"
	"slipway/internal/tenant/site"
)

// A terminal shows a program's output, sends input, follows the window's size, lets the keyboard leave it, and shows
// why it closed.
func TestBrowserTerminal(t *testing.T) {
	t.Parallel()
	typed := make(chan string, 100)
	w := newWorld(t, func(c *Config) {
		c.Programs = programs{terminal: func(ctx context.Context, s site.Site, x *runtime.Terminal) (string, error) {
			// Colors, cursor positions, hostile text, a title and wide characters.
			fmt.Fprintf(
				x.Output,
				"\x1b]0;title\x07\x1b[2J\x1b[1;1H\x1b[1;32mgreen\x1b[0m <img src=x onerror=slipwayWasHere=1> \x1b[3;5H\x1b[48;5;196;38;2;0;0;0mplaced\x1b[0m \x1b[48;2;255;255;255;38;2;200;30;60mrgb\x1b[0m\r\n日本 wide\r\n%d columns\r\n$ ",
				x.Size.Columns,
			)
			buf := make([]byte, 1<<10)
			for {
				n, err := x.Input.Read(buf)
				if err != nil {
					return "hung up", nil
				}
				text := string(buf[:n])
				typed <- text
				if text == "\x04" {
					return "The shell ended: exit code 0", nil
				}
				fmt.Fprintf(x.Output, "%s", text)
			}
		}}
	})
	const ada = "ada@example.test"
	u := w.user(ada, false)
	s := w.site(u, "Shop")
	w.program(s, w.deployment(s))
	b := w.window("terminal", w.srv.URL)
	signIn(b, ada)
	b.Go("/sites/" + string(s.ID) + "/terminal")
	b.Look("terminal-off")
	b.Press("@enable-terminal")
	b.Look("terminal-closed")
	b.Click("@start-terminal")
	screen := func(text string) {
		t.Helper()
		b.Until(
			"the terminal does not show "+text,
			`[...document.querySelectorAll('.xterm-rows > div')].map((e) => e.textContent).join('\n').replaceAll('\u00a0', ' ').includes(`+fmt.Sprintf("%q", text)+`)`,
		)
	}
	b.Sees("@terminal-state", "Connected")
	for _, text := range []string{"green <img src=x onerror", "    placed", "日本 wide", " columns\n$"} {
		screen(text)
	}
	b.Until(
		"colors are not drawn",
		`document.querySelector('.xterm-rows .xterm-bold')?.innerText === 'green' && getComputedStyle([...document.querySelectorAll('.xterm-rows span')].find((e) => e.innerText === 'placed')).backgroundColor === 'rgb(255, 0, 0)' && getComputedStyle([...document.querySelectorAll('.xterm-rows span')].find((e) => e.innerText === 'rgb')).color === 'rgb(200, 30, 60)'`,
	)
	hear := func(want string) {
		t.Helper()
		if got := <-typed; got != want {
			t.Errorf("%q was typed, want %q", got, want)
		}
	}
	b.Focused(".xterm-helper-textarea")
	// Dispatch key events directly, because b.Keys also sends a character.
	press := func(key, code string, virtual int64, text string, m input.Modifier) {
		b.Run(
			input.DispatchKeyEvent(input.KeyDown).WithKey(key).WithCode(code).WithWindowsVirtualKeyCode(virtual).WithText(text).WithModifiers(m),
			input.DispatchKeyEvent(input.KeyUp).WithKey(key).WithCode(code).WithWindowsVirtualKeyCode(virtual).WithModifiers(m),
		)
	}
	press("l", "KeyL", 'L', "l", 0)
	hear("l")
	press("s", "KeyS", 'S', "s", 0)
	hear("s")
	press("Enter", "Enter", 13, "\r", 0)
	hear("\r")
	screen("$ ls")
	b.Keys("Tab") // goes to the shell
	hear("\t")
	b.Look("terminal")
	b.Focused(".xterm-helper-textarea")
	b.Keys("Shift+Tab") // leaves the terminal
	b.Until("the keyboard is trapped", `!document.activeElement.matches('.xterm-helper-textarea')`)
	b.Click("@terminal")
	b.Focused(".xterm-helper-textarea")
	press("d", "KeyD", 'D', "", input.ModifierCtrl)
	hear("\x04")
	b.Sees("@terminal-state", "The shell ended: exit code 0")
	b.Sees("@start-terminal")
}
