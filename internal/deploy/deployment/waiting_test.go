package deployment

import (
	"slices"
	"testing"

	"slipway/internal/tenant/site"
)

// A pushed commit is waiting until it or a later commit of its branch is deployed, unless its owner skipped it.
func TestWaiting(t *testing.T) {
	t.Parallel()
	pushed := func(commit string, status Status, why string) Deployment {
		return Deployment{
			Repository: "git.test/acme/shop", Branch: "main", Target: Production,
			Cause: ByPush, Pinned: true, CommitHash: commit, Status: status, Error: why,
		}
	}
	off := func(commit string) Deployment { return pushed(commit, Canceled, SkippedFor(WhyOff)) }
	byHand := func(commit string, status Status) Deployment {
		x := pushed(commit, status, "")
		x.Cause, x.Pinned = ByDashboard, commit == "chosen" || commit == "b"
		return x
	}
	with := func(x Deployment, change func(*Deployment)) Deployment { change(&x); return x }
	for name, tt := range map[string]struct {
		list []Deployment // oldest first
		want string
	}{
		"nothing":                    {nil, ""},
		"deployed by its push":       {[]Deployment{pushed("a", Success, "")}, ""},
		"automatic deployments off":  {[]Deployment{pushed("a", Success, ""), off("b")}, "b"},
		"the site was stopped":       {[]Deployment{pushed("b", Canceled, SkippedFor(WhyStopped))}, "b"},
		"the newest of two":          {[]Deployment{off("a"), off("b")}, "b"},
		"left out by its message":    {[]Deployment{pushed("a", Success, ""), pushed("b", Canceled, SkippedFor("the commit message says [skip ci]"))}, ""},
		"left out after one waits":   {[]Deployment{off("a"), pushed("b", Canceled, SkippedFor("the commit message says [skip ci]"))}, "b"},
		"canceled by its owner":      {[]Deployment{pushed("b", Canceled, "Canceled by its owner")}, ""},
		"the head was deployed":      {[]Deployment{off("b"), byHand("c", Success)}, ""},
		"the head is being deployed": {[]Deployment{off("b"), byHand("", Pending)}, ""},
		"the very commit was":        {[]Deployment{off("b"), byHand("b", Success)}, ""},
		"and rolled back":            {[]Deployment{off("b"), byHand("b", Success), with(byHand("a", Success), func(x *Deployment) { x.ReleaseOf = "dep_a" })}, ""},
		"another commit was":         {[]Deployment{off("b"), byHand("chosen", Success)}, "b"},
		"its deployment failed":      {[]Deployment{off("b"), byHand("b", Failed)}, "b"},
		"a later push was deployed":  {[]Deployment{off("b"), pushed("c", Success, "")}, ""},
		"a later push failed":        {[]Deployment{off("b"), pushed("c", Failed, "exit status 1")}, "c"},
		"an upload is no commit":     {[]Deployment{off("b"), with(byHand("", Success), func(x *Deployment) { x.Upload = "upl_1" })}, "b"},
		"another branch before":      {[]Deployment{with(off("b"), func(x *Deployment) { x.Branch = "old" })}, ""},
		"another repository before":  {[]Deployment{with(off("b"), func(x *Deployment) { x.Repository = "git.test/acme/old" })}, ""},
		"its id is not known":        {[]Deployment{off("")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := slices.Clone(tt.list)
			slices.Reverse(list)
			got := ""
			if x := waiting(list, site.Site{Repository: "git.test/acme/shop", Branch: "main"}); x != nil {
				got = x.CommitHash
			}
			if got != tt.want {
				t.Errorf("%q waits, want %q", got, tt.want)
			}
		})
	}
}
