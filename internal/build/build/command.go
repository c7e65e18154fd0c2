package build

import (
	"context"
	"fmt"
	"path"
	"time"

	"slipway/internal/build/buildlog"
	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
)

// run runs a stage's commands in order, each in its own sandbox over the same files. If remark isn't empty, it is
// logged first.
func (b *build) run(
	ctx context.Context,
	network sandbox.Network,
	stage string,
	commands []framework.Command,
	extra map[string]string,
	remark string,
) error {
	if len(commands) == 0 {
		b.report.Skip(stage)
		return nil
	}
	b.report.Enter(stage)
	if remark != "" {
		b.printf("info", "%s", remark)
	}
	if stage == "build" {
		if err := b.cache.restore("tree", b.work, RepoDir, b.cacheFolders(false), b.uid); err != nil {
			return err
		}
	}
	limits := b.c.Limits
	stop := time.Now().Add(limits.Wall) // for the whole stage
	for _, c := range commands {
		fmt.Fprintf(b.log, "$ %s\n", c) // through the log, because a command may contain a secret
		limits.Wall = time.Until(stop)
		cmd := sandbox.Command{
			Argv: c.Argv, Dir: path.Join(sandbox.Root, RepoDir, c.Dir), Env: b.commandEnv(c, extra), Work: b.work, Binds: b.tools.Binds,
			System: b.root.Tree(), UID: b.uid, Network: network, Limits: limits, Stdout: b.log, Stderr: b.log,
		}
		if c.Shell != "" { // the user's own command, in the user's sandbox
			cmd.Argv = []string{shell(c.Shell), "-c", c.Shell}
		}
		res, err := b.c.Runner.Run(ctx, cmd)
		b.log.Flush()
		if ctx.Err() != nil && !overLimit(res) {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", stage, err)
		}
		if !res.OK() {
			return b.failed(stage, c, res, limits)
		}
	}
	return nil
}

// overLimit reports whether a command was killed for exceeding a limit. A retry would end in the same way, so it counts
// as failed even if the build was canceled meanwhile.
func overLimit(res sandbox.Result) bool {
	return res.Killed != sandbox.NotKilled && res.Killed != sandbox.Canceled && res.Killed != sandbox.Timeout
}

// failed returns the fault of a failed command, with an excerpt of its log and a likely cause.
func (b *build) failed(stage string, c framework.Command, res sandbox.Result, limits sandbox.Limits) error {
	if lines := b.log.Excerpt(20); len(lines) > 0 {
		b.printf("info", "From the output above:")
		for _, line := range lines {
			b.printf("error", "%s", line)
		}
	}
	limit := b.c.Limits
	why := b.log.Cause(buildlog.Failure{
		ExitCode: res.ExitCode, OOM: res.OOM, Killed: string(res.Killed), Stage: stage, Manager: b.Plan.Manager,
		MemoryLimit: limit.Memory, DiskLimit: limit.Disk, TimeLimit: limit.Wall,
		Conflict: b.conflict(), Unset: b.unset(), Windows: b.windows(c),
	})
	message := fmt.Sprintf("The %s failed (%s)", stage, res)
	if res.Killed != sandbox.NotKilled { // the cause says which limit
		message = fmt.Sprintf("The %s did not finish", stage)
	}
	return fault.New(fault.Invalid, CodeFailed, message, why)
}
