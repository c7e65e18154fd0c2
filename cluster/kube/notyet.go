package kube

import "slipway/internal/program/runtime"

// Lack is something that a program may need and that this engine doesn't offer yet.
type Lack struct {
	Name string
	Why  string // a sentence, for the user
	Case string // the case of enginetest that needs it; empty where none does

	needs func(s runtime.Spec) bool
}

// NotYet lists all of it: a program that needs one of these is refused with its sentence, the conformance
// tests leave out its case.
var NotYet = []Lack{
	{
		Name:  "Redis beside PHP",
		Why:   "The object cache is not available on Kubernetes yet",
		needs: func(s runtime.Spec) bool { return s.Redis },
	},
}

// refusal says why a program can't run on this engine yet; empty where it can.
func refusal(s runtime.Spec) string {
	for _, l := range NotYet {
		if l.needs(s) {
			return l.Why
		}
	}
	return ""
}
