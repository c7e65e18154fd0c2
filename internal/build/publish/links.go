package publish

import (
	"cmp"
	"context"
	"io/fs"

	"slipway/internal/build/release"
	"slipway/internal/build/rules"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/fault"
)

// resolveLinks replaces symbolic links by their targets, and warns about links that can't be published, such as to PHP
// source. A rule file that can't be read is a fault.
func resolveLinks(ctx context.Context, tree fetch.Reader, all []fetch.File, folder string, say Log) ([]fetch.File, error) {
	followed, left, err := fetch.Follow(ctx, tree, all)
	if err != nil {
		return nil, err
	}
	for _, f := range left {
		switch {
		case f.Mode&fs.ModeSymlink == 0:
			say("warn", "Skipped %q: it is a submodule that .gitmodules does not declare", f.Path)
		case ruleFile(folder, f.Path):
			return nil, fault.New(fault.Invalid, "unreadable_file", f.Path+" can't be read",
				"it is a link that leads outside the repository or to nothing; commit the file itself")
		default:
			say("warn", "Skipped %q: the link leads outside the repository, to nothing, or to a folder that it is in", f.Path)
		}
	}
	files, closed, first, php := make([]fetch.File, 0, len(followed)), 0, "", false
	for _, f := range followed { // a link must not publish a file whose own name is closed
		_, published := inside(folder, f.Path)
		switch {
		case release.PHPSource(f.Path), release.PHPSource(f.Real):
			if published && !php {
				php = true
				say("warn", "Skipped %q: %s", f.Path, release.WhyNoPHP)
			}
		case release.Hidden(f.Real) && !release.Hidden(f.Path):
			if published {
				closed, first = closed+1, cmp.Or(first, f.Path)
			}
		default:
			files = append(files, f.File)
		}
	}
	if closed > 0 {
		say("warn", "Skipped %d files because links lead to hidden names, the first is %q", closed, first)
	}
	return files, nil
}

// ruleFile reports whether a path is _redirects or _headers of the published folder.
func ruleFile(folder, path string) bool {
	name, ok := inside(folder, path)
	return ok && rules.IsFile(name)
}
