package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"slipway/e2e/world"
)

type storyKeyType struct{}

var storyKey = storyKeyType{}

// story holds the state of one script.
type story struct {
	world  *world.World
	last   world.Answer // of the api command
	client *http.Client
	typed  int // number of slipway commands that the user has run
}

// commands are the commands of the scripts in testdata, in addition to testscript's own:
//
//	serve [FLAG…]                        start the program with these additional flags, and wait until it is ready
//	setting NAME=VALUE…                  set environment variables of the program for later starts
//	without FLAG                         remove a flag from later starts
//	restart [-kill]                      stop it with SIGTERM (it must exit with 0) or SIGKILL, and start it again
//	stop [-kill]                         stop it
//	user EMAIL [SCOPE…]                  create a user and an API key, and set $KEY to the key
//	key EMAIL [SCOPE…]                   create another API key of a user, and set $KEY to it
//	api [-H K:V]… [-as KEY] METHOD PATH [BODY]   send a request to /api/v1; PATH may be a URL; BODY is JSON or a file; "!" expects 4xx or 5xx
//	set NAME FIELD                       set $NAME to a field (a.b.0.c) of the last api response
//	get [-H K:V]… [METHOD] URL           request a site's URL over TLS; "!" expects 4xx or 5xx
//	until [-within D] COMMAND… REGEXP    repeat api or get until the output matches; "!" until it doesn't
//	repo [-private TOKEN] [-branch B] NAME DIR [MESSAGE]   commit DIR to git.test/NAME, and set $COMMIT to the commit
//	pushes NAME URL SECRET               from now on, each push to the repository calls URL, signed as GitHub signs
//	hook [-n N] [-secret S] PATH EVENT [REGEXP]   wait for N deliveries of an event, check their signatures, and print them
//	answer PATH STATUS…                  set the statuses of the receiver's next responses at a path
//	refuse REGEXP COMMAND…               run the program; it must exit with an error in one line that matches, and change no file
//	sql STATEMENT                        change the program's database directly
//	absent TEXT                          no file in the data directory contains this text
//	serves PATH FILE                     make the receiver respond to GET at a path with this file
//	slipway ARG…                         run the program like exec, and count the command; "!" expects it to fail
//	commands N                           check the number of counted commands
var commands = map[string]func(*testscript.TestScript, bool, []string){
	"serve": serve, "restart": restart, "stop": stop, "user": user, "key": key, "api": api, "set": set, "get": get,
	"until": until, "repo": repo, "hook": hook, "answer": answer, "refuse": refuse, "absent": absent, "sql": change,
	"setting": setting, "without": without, "pushes": pushes, "serves": serves, "slipway": typed, "commands": counted,
}

func of(ts *testscript.TestScript) *story { return ts.Value(storyKey).(*story) }

func serve(ts *testscript.TestScript, neg bool, args []string) {
	s := of(ts)
	s.world.Flags = append(s.world.Flags, args...)
	ctx, cancel := deadline()
	defer cancel()
	ts.Check(s.world.Start(ctx))
}

func setting(ts *testscript.TestScript, neg bool, args []string) {
	w := of(ts).world
	w.Env = append(w.Env, args...)
}

func without(ts *testscript.TestScript, neg bool, args []string) {
	w := of(ts).world
	i := slices.Index(w.Flags, args[0])
	if i < 0 {
		ts.Fatalf("serve doesn't get %s", args[0])
	}
	w.Flags = slices.Delete(w.Flags, i, i+2)
}

func stop(ts *testscript.TestScript, neg bool, args []string) {
	s := of(ts)
	if len(args) > 0 && args[0] == "-kill" {
		s.world.Kill()
		return
	}
	ctx, cancel := deadline()
	defer cancel()
	ts.Check(s.world.Stop(ctx))
}

func restart(ts *testscript.TestScript, neg bool, args []string) {
	stop(ts, neg, args)
	serve(ts, neg, nil)
}

func user(ts *testscript.TestScript, neg bool, args []string) {
	k, err := of(ts).world.User(args[0], args[1:]...)
	ts.Check(err)
	ts.Setenv("KEY", k)
}

func key(ts *testscript.TestScript, neg bool, args []string) {
	k, err := of(ts).world.Key(args[0], args[1:]...)
	ts.Check(err)
	ts.Setenv("KEY", k)
}

// headers removes -H K:V and -as KEY from the beginning of args.
func headers(args []string, key string) (http.Header, string, []string) {
	h := http.Header{}
	for len(args) > 1 {
		switch args[0] {
		case "-H":
			k, v, _ := strings.Cut(args[1], ":")
			h.Set(k, strings.TrimSpace(v))
		case "-as":
			key = args[1]
		default:
			return h, key, args
		}
		args = args[2:]
	}
	return h, key, args
}

func api(ts *testscript.TestScript, neg bool, args []string) {
	a, err := callAPI(ts, args)
	ts.Check(err)
	of(ts).last = a
	fmt.Fprint(ts.Stdout(), show(a))
	check(ts, neg, a)
}

func callAPI(ts *testscript.TestScript, args []string) (world.Answer, error) {
	h, key, args := headers(args, ts.Getenv("KEY"))
	if len(args) < 2 {
		ts.Fatalf("usage: api [-H K:V]… [-as KEY] METHOD PATH [BODY]")
	}
	r := world.Request{Method: args[0], Path: args[1], Key: key, Header: h}
	if strings.HasPrefix(args[1], "http") {
		r.URL = args[1]
	}
	if len(args) > 2 {
		r.Body = args[2]
		if !strings.ContainsAny(args[2], "{[\"") {
			r.Body = ts.ReadFile(args[2])
		}
	}
	ctx, cancel := deadline()
	defer cancel()
	return of(ts).world.Do(ctx, r)
}

func get(ts *testscript.TestScript, neg bool, args []string) {
	a, err := callSite(ts, args)
	ts.Check(err)
	fmt.Fprint(ts.Stdout(), show(a))
	check(ts, neg, a)
}

func callSite(ts *testscript.TestScript, args []string) (world.Answer, error) {
	s := of(ts)
	h, _, args := headers(args, "")
	r := world.Request{Method: "GET", Header: h, URL: args[len(args)-1]}
	if len(args) == 2 {
		r.Method = args[0]
	}
	if s.client == nil {
		client, err := s.world.Browser()
		if err != nil {
			return world.Answer{}, err
		}
		s.client = client
	}
	ctx, cancel := deadline()
	defer cancel()
	return s.world.Site(ctx, s.client, r)
}

func check(ts *testscript.TestScript, neg bool, a world.Answer) {
	if bad := a.Status >= 400; bad != neg {
		ts.Fatalf("status %d", a.Status)
	}
}

// show formats an answer: the status, the sorted headers, and indented JSON.
func show(a world.Answer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP %d\n", a.Status)
	for _, k := range slices.Sorted(maps.Keys(a.Header)) {
		fmt.Fprintf(&b, "%s: %s\n", k, strings.Join(a.Header[k], ", "))
	}
	b.WriteByte('\n')
	var pretty bytes.Buffer
	if json.Indent(&pretty, a.Body, "", "  ") == nil {
		b.Write(pretty.Bytes())
	} else {
		b.Write(a.Body)
	}
	b.WriteByte('\n')
	return b.String()
}

func set(ts *testscript.TestScript, neg bool, args []string) {
	var v any
	ts.Check(of(ts).last.JSON(&v))
	for part := range strings.SplitSeq(args[1], ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[part]
		case []any:
			i, err := strconv.Atoi(part)
			ts.Check(err)
			if i >= len(x) {
				ts.Fatalf("%s: only %d items", args[1], len(x))
			}
			v = x[i]
		}
	}
	if v == nil {
		ts.Fatalf("the last answer has no %s: %s", args[1], of(ts).last.Body)
	}
	ts.Setenv(args[0], fmt.Sprint(v))
}

func until(ts *testscript.TestScript, neg bool, args []string) {
	limit := patience
	if args[0] == "-within" {
		var err error
		limit, err = time.ParseDuration(args[1])
		ts.Check(err)
		limit = world.Patience(limit)
		args = args[2:]
	}
	want, err := regexp.Compile("(?m)" + args[len(args)-1])
	ts.Check(err)
	look := map[string]func(*testscript.TestScript, []string) (world.Answer, error){"api": callAPI, "get": callSite}[args[0]]
	if look == nil {
		ts.Fatalf("until repeats api or get, not %s", args[0])
	}
	var last world.Answer
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("it didn't come in %s", limit))
	defer cancel()
	err = world.Until(ctx, 25*time.Millisecond, func() (bool, error) {
		var err error
		if last, err = look(ts, args[1:len(args)-1]); err != nil {
			return false, err
		}
		return want.MatchString(show(last)) != neg, nil
	})
	if args[0] == "api" {
		of(ts).last = last
	}
	fmt.Fprint(ts.Stdout(), show(last))
	ts.Check(err)
}

func repo(ts *testscript.TestScript, neg bool, args []string) {
	branch, token, message := "main", "", "a commit"
	for len(args) > 2 && strings.HasPrefix(args[0], "-") {
		switch args[0] {
		case "-branch":
			branch = args[1]
		case "-private":
			token = args[1]
		default:
			ts.Fatalf("unknown flag %s", args[0])
		}
		args = args[2:]
	}
	if len(args) > 2 {
		message = args[2]
	}
	g := of(ts).world.Git
	if token != "" {
		g.Private(args[0], token)
	}
	commit, err := g.Commit(args[0], branch, ts.MkAbs(args[1]), message)
	ts.Check(err)
	ts.Setenv("COMMIT", commit)
}

func pushes(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(of(ts).world.Git.Tell(args[0], args[1], args[2]))
}

func answer(ts *testscript.TestScript, neg bool, args []string) {
	var statuses []int
	for _, a := range args[1:] {
		n, err := strconv.Atoi(a)
		ts.Check(err)
		statuses = append(statuses, n)
	}
	of(ts).world.Hooks.Answer(args[0], statuses...)
}

func hook(ts *testscript.TestScript, neg bool, args []string) {
	n, secret, like := 1, "", ""
	for len(args) > 2 && strings.HasPrefix(args[0], "-") {
		switch args[0] {
		case "-n":
			var err error
			n, err = strconv.Atoi(args[1])
			ts.Check(err)
		case "-secret":
			secret = args[1]
		default:
			ts.Fatalf("unknown flag %s", args[0])
		}
		args = args[2:]
	}
	if len(args) > 2 {
		like = args[2]
	}
	want, err := regexp.Compile(like)
	ts.Check(err)
	r := of(ts).world.Hooks
	match := func(d world.Delivery) bool {
		return d.Path == args[0] && d.Event == args[1] && want.Match(d.Body)
	}
	if neg {
		for _, d := range r.All() {
			if match(d) {
				ts.Fatalf("%s was delivered to %s: %s", args[1], args[0], d.Body)
			}
		}
		return
	}
	ctx, cancel := deadline()
	defer cancel()
	hits, err := r.Wait(ctx, n, match)
	for _, d := range hits {
		fmt.Fprint(ts.Stdout(), show(world.Answer{Status: d.Status, Header: d.Header, Body: d.Body}))
		if got := d.Header.Get("X-Service-Signature"); secret != "" && got != world.Signature(secret, d.Body) {
			ts.Fatalf("signature %q is not the one of the body and the secret", got)
		}
	}
	ts.Check(err)
}

// refuse runs the program with arguments that it must reject.
func refuse(ts *testscript.TestScript, neg bool, args []string) {
	before, err := fingerprint(of(ts).world)
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGKILL) }
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	said := strings.TrimSuffix(errs.String(), "\n")
	switch {
	case ctx.Err() != nil:
		ts.Fatalf("it runs on; it said: %s", said)
	case err == nil:
		ts.Fatalf("it ended with 0; it said: %s", said)
	case strings.Contains(said, "\n") || said == "":
		ts.Fatalf("not one line: %q", said)
	case !regexp.MustCompile(args[0]).MatchString(said):
		ts.Fatalf("it said %q, which is not like %s", said, args[0])
	case out.Len() > 0:
		ts.Fatalf("it wrote to standard output: %s", out.String())
	}
	after, err := fingerprint(of(ts).world)
	ts.Check(err)
	if before != after {
		ts.Fatalf("it changed the data directory:\n%s\nbecame\n%s", before, after)
	}
	ts.Logf("%s", said)
}

// fingerprint returns a text that changes when a file in the data folder changes: names, sizes and contents.
func fingerprint(w *world.World) (string, error) {
	var out strings.Builder
	dir, busy := w.Data, w.PID() != 0
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if os.IsNotExist(err) && path == dir {
			return nil
		}
		if err != nil {
			return err
		}
		if busy && strings.HasPrefix(e.Name(), "slipway.db") {
			return nil // a running program writes to its database at any time
		}
		fmt.Fprintf(&out, "%s %v", strings.TrimPrefix(path, dir), e.Type())
		if e.Type().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " %.12s", world.Signature("", text)[7:])
		}
		out.WriteByte('\n')
		return nil
	})
	return out.String(), err
}

func absent(ts *testscript.TestScript, neg bool, args []string) {
	err := filepath.WalkDir(of(ts).world.Data, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && bytes.Contains(text, []byte(args[0])) {
			return fmt.Errorf("%s holds %q", path, args[0])
		}
		return err
	})
	ts.Check(err)
}

func change(ts *testscript.TestScript, neg bool, args []string) {
	d, err := sql.Open("sqlite", filepath.Join(of(ts).world.Data, "slipway.db"))
	ts.Check(err)
	defer d.Close()
	_, err = d.Exec(args[0])
	ts.Check(err)
}

func serves(ts *testscript.TestScript, neg bool, args []string) {
	of(ts).world.Hooks.Serve(args[0], []byte(ts.ReadFile(args[1])))
}

func typed(ts *testscript.TestScript, neg bool, args []string) {
	of(ts).typed++
	if err := ts.Exec("slipway", args...); (err != nil) != neg {
		ts.Fatalf("slipway %s: %v", strings.Join(args, " "), err)
	}
}

func counted(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if n := of(ts).typed; n != want {
		ts.Fatalf("it took %d commands, want %d", n, want)
	}
}
