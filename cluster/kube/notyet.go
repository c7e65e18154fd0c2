package kube

import (
	"fmt"
	"strings"

	"slipway/internal/build/toolchain"
	"slipway/internal/program/runtime"
)

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
		Name: "Storage",
		Why:  "Folders that keep what a program writes are not available on Kubernetes yet",
		Case: "storage stays, by site",
		needs: func(s runtime.Spec) bool {
			for _, f := range s.Storage {
				if !f.Temporary {
					return true
				}
			}
			return false
		},
	},
	{
		Name:  "PHP and WordPress",
		Why:   "PHP is not available on Kubernetes yet",
		needs: func(s runtime.Spec) bool { return s.PHP != nil },
	},
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

// image returns the newest image whose Node.js a program can run on.
func (e *Engine) image(node string) (string, error) {
	var have []string
	for _, i := range e.c.Images {
		if toolchain.Fits(node, i.Node) {
			return i.Name, nil
		}
		have = append(have, i.Node)
	}
	return "", fmt.Errorf("no image on this cluster has Node.js %s: there is %s", node, strings.Join(have, ", "))
}
