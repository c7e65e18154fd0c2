package world

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"slipway/internal/web/docs"
)

// curlrc makes curl print the answer's status on stderr.
const curlrc = "silent\nshow-error\nwrite-out = \"%{stderr}%{http_code}\"\n"

var shellVariable = regexp.MustCompile(`\$([A-Z][A-Z_]*)`)

// defaultKey is the variable with the API key of steps that name none.
const defaultKey = "SLIPWAY_KEY"

var examples = regexp.MustCompile(`(?s)<code data-example="(\w+)">(.*?)</code>`)

// RunScenario runs the steps of a scenario in a shell, with the commands that the program's own pages show, and these
// variables. Other placeholders are looked up when needed. If a later step calls the same operation with other values,
// its command is rendered as the page would.
func (w *World) RunScenario(ctx context.Context, dir string, s docs.Scenario, env map[string]string, lookup func(name string, env map[string]string) (string, error)) error {
	if err := os.WriteFile(filepath.Join(dir, ".curlrc"), []byte(curlrc), 0o600); err != nil {
		return err
	}
	var doc struct {
		Paths map[string]map[string]struct {
			ID        string `json:"operationId"`
			Tags      []string
			Responses map[string]any
		}
	}
	answer, err := w.Do(ctx, Request{Method: "GET", Path: "/openapi.json"})
	if err == nil {
		err = answer.JSON(&doc)
	}
	if err != nil {
		return err
	}
	status, page := map[string]int{}, map[string]string{}
	for _, item := range doc.Paths {
		for _, o := range item {
			for code := range o.Responses {
				if n, err := strconv.Atoi(code); err == nil && n < 300 && (status[o.ID] == 0 || n < status[o.ID]) {
					status[o.ID], page[o.ID] = n, strings.ReplaceAll(strings.ToLower(o.Tags[0]), " ", "-")
				}
			}
		}
	}
	for i, step := range s.Steps {
		command, err := w.Example(ctx, page[step.Operation], step.Operation)
		if err != nil {
			return err
		}
		if shown, ok := docs.Example(step.Operation); ok && !sameStep(shown, step) {
			if command, err = again(command, shown, step); err != nil {
				return err
			}
		}
		all := maps.Clone(env)
		for _, m := range shellVariable.FindAllStringSubmatch(command, -1) {
			if all[m[1]] == "" {
				if all[m[1]], err = lookup(m[1], env); err != nil {
					return fmt.Errorf("%s: %w", command, err)
				}
			}
		}
		out, got, err := shell(ctx, dir, command, all)
		if want := cmp.Or(step.Status, status[step.Operation]); err != nil || got != want {
			return fmt.Errorf("step %d:\n%s\nanswers %d, documented is %d: %v\n%s", i+1, command, got, want, err, out)
		}
		for _, keep := range step.Keep {
			name, at, _ := strings.Cut(keep, "=")
			if env[name], err = pick(out, at); err != nil {
				return fmt.Errorf("%s: %w", command, err)
			}
		}
		if step.Until[0] != "" {
			if err := w.waitFor(ctx, env, cmp.Or(step.Key, defaultKey), step.Until); err != nil {
				return fmt.Errorf("after\n%s\n%w", command, err)
			}
		}
	}
	return nil
}

// Example returns the command that a page of the reference, such as sites or sites?lang=go, shows for an operation.
func (w *World) Example(ctx context.Context, page, operation string) (string, error) {
	a, err := w.Do(ctx, Request{Method: "GET", URL: "http://" + w.Listen + "/docs/" + page})
	if err != nil {
		return "", err
	}
	for _, m := range examples.FindAllStringSubmatch(string(a.Body), -1) {
		if m[1] == operation {
			return html.UnescapeString(m[2]), nil
		}
	}
	return "", fmt.Errorf("/docs/%s shows no example of %s", page, operation)
}

func sameStep(a, b docs.Step) bool { return a.Body == b.Body && a.Query == b.Query && a.Key == b.Key }

// again converts the command shown for a step to that of another step of the same operation.
func again(command string, shown, step docs.Step) (string, error) {
	quote := func(s string) string {
		return " \\\n  --json '" + shellVariable.ReplaceAllStringFunc(s, func(v string) string { return `'"` + v + `"'` }) + "'"
	}
	out := command
	if shown.Body != "" {
		out = strings.Replace(out, quote(shown.Body), "", 1)
	}
	if step.Body != "" {
		out += quote(step.Body)
	} else if shown.Body != "" && !strings.Contains(out, " -X ") {
		out = strings.Replace(out, "curl ", "curl -X POST ", 1) // --json implies it
	}
	out = strings.Replace(out, "Bearer $"+cmp.Or(shown.Key, defaultKey)+`"`, "Bearer $"+cmp.Or(step.Key, defaultKey)+`"`, 1)
	if out == command {
		return "", fmt.Errorf("%s: it can't be turned into the step", command)
	}
	return out, nil
}

// shell runs a command as a user would paste it, and returns its output and the answer's status.
func shell(ctx context.Context, dir, command string, env map[string]string) (out string, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience(2*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-uc", command)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "CURL_HOME="+dir)
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	status, wrong := strconv.Atoi(strings.TrimSpace(stderr.String()))
	if err == nil && wrong != nil {
		err = fmt.Errorf("curl says %q", stderr.String())
	}
	return stdout.String(), status, err
}

// pick returns a field (a.b) of a JSON object as text.
func pick(body, path string) (string, error) {
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		return "", fmt.Errorf("the answer is no JSON: %.200s", body)
	}
	path, last := strings.CutSuffix(path, "/")
	for part := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[part]
	}
	text, _ := v.(string)
	if text == "" {
		return "", fmt.Errorf("the answer has no %s: %.500s", path, body)
	}
	if last {
		text = text[strings.LastIndex(text, "/")+1:]
	}
	return text, nil
}

// waitFor waits until a field of an API answer has a value, and fails at a value from which it can't get there.
func (w *World) waitFor(ctx context.Context, env map[string]string, key string, until [3]string) error {
	path := os.Expand(until[0], func(name string) string { return env[name] })
	ctx, cancel := context.WithTimeout(ctx, Patience(5*time.Minute))
	defer cancel()
	var last string
	err := Until(ctx, 100*time.Millisecond, func() (bool, error) {
		a, err := w.Do(ctx, Request{Method: "GET", Path: path, Key: env[key]})
		if err != nil {
			return false, err
		}
		last = string(a.Body)
		now, err := pick(last, until[1])
		if now == "failed" || now == "error" {
			return true, nil
		}
		return now == until[2], err
	})
	if now, _ := pick(last, until[1]); now != until[2] {
		return fmt.Errorf("%s: %s is not %s: %v: %.600s", path, until[1], until[2], err, last)
	}
	return nil
}
