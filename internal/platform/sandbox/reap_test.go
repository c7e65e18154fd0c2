package sandbox

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/sandbox/cgroup"
	"slipway/internal/platform/sandbox/inside"
)

// serve acts as a control plane in a separate process: it runs one sandbox until it is killed.
func serve(dir, work, token string) int {
	b, err := New(Config{Dir: dir, Self: os.Getenv(helperVar)})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, err = b.Run(context.Background(), Command{
		Argv:   attackArgv("daemons", token),
		Work:   work,
		UID:    siteUID(),
		Limits: small(),
		Stdout: os.Stdout,
		Stderr: os.Stdout,
	})
	fmt.Println("ended", err)
	return 1
}

func TestKilledControlPlaneLeavesNothing(t *testing.T) {
	t.Parallel()
	dir, work, token := filepath.Join(t.TempDir(), "state"), newWork(t), "token-"+newID()
	c := exec.Command("/proc/self/exe", "attack", "serve", dir, work, token)
	c.Env = append(os.Environ(), helperVar+"="+helper)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("serve said %q, %v", line, err)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	b, err := New(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeParents(b.engine) })
	if err := b.Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, b, token)
	if left := cgroup.Left(b.hs, b.parent); len(left) > 0 {
		t.Errorf("cgroups are left: %v", left)
	}
}

// Reap kills processes of earlier runs that outlived their parents.
func TestReapKillsStrays(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	stray := func(args []string, env ...string) *exec.Cmd {
		c := exec.Command("/proc/self/exe", append([]string{"attack", "deaf"}, args...)...)
		c.Env = env
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	strays := []*exec.Cmd{
		stray([]string{inside.Name, b.name, "5", "6"}),
		stray(nil, markVar+"="+b.name+"/"+newID()),
	}
	innocent := stray([]string{inside.Name, b.name + "0", "5", "6"}, markVar+"="+b.name+"0/x")
	defer func() { _ = innocent.Process.Kill(); _ = innocent.Wait() }()
	if g, err := cgroup.New(b.hs, b.parent, newID(), small().withDefaults().group()); err == nil {
		c := stray(nil)
		if err := g.Attach(c.Process.Pid); err != nil {
			t.Fatal(err)
		}
		strays = append(strays, c)
	}
	ended := make(chan *exec.Cmd)
	for _, c := range strays {
		go func() { _ = c.Wait(); ended <- c }()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := b.Reap(ctx); err != nil {
		t.Fatal(err)
	}
	for range strays {
		select {
		case c := <-ended:
			if ws := c.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
				t.Errorf("%v ended by itself: %v", c.Args, c.ProcessState)
			}
		case <-ctx.Done():
			t.Fatal("a left-over process is still running")
		}
	}
	if err := unix.Kill(innocent.Process.Pid, 0); err != nil {
		t.Errorf("somebody else's process is gone: %v", err)
	}
	if left := cgroup.Left(b.hs, b.parent); len(left) > 0 {
		t.Errorf("cgroups are left: %v", left)
	}
}
