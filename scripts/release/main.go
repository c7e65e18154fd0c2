// Command release makes the files from which Slipway is installed: an archive and a Debian package per architecture,
// checksums, release notes, and a list of components (CycloneDX).
//
// The same commit makes the same bytes, in any folder and at any time: builds contain no paths, and every date is the
// commit's.
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"aead.dev/minisign"

	"slipway/packaging"
	"slipway/scripts/internal/changelog"
)

func main() {
	r := release{}
	flag.StringVar(&r.out, "out", "dist", "folder for the files; emptied first")
	flag.StringVar(&r.version, "version", "", "version; default: that in VERSION, with the commit unless it is tagged or, without tags, changed VERSION")
	archs := flag.String("arch", "amd64,arm64", "architectures")
	key := flag.String("sign", "", "secret key of minisign that signs SHA256SUMS, its password in MINISIGN_PASSWORD; the program and install.sh trust it")
	also := flag.String("trust", "", "public keys of minisign, separated by commas, that are trusted besides: those that will sign later releases")
	flag.StringVar(&r.releases, "publish", "", "folder of releases, to which this one is added and listed for slipway upgrade --auto; needs -sign")
	flag.StringVar(&r.aptKey, "apt-key", "", "key of gpg that signs the index with which apt installs from the folder of -publish")
	flag.BoolVar(&r.terraform, "terraform", false, "also make the provider for Terraform and OpenTofu, for all its platforms")
	flag.BoolVar(&r.images, "images", false, "also make the container image of each architecture")
	flag.BoolVar(&r.cluster, "cluster", false, "also make the chart for Helm and the images of a cluster that it installs, of each architecture")
	flag.StringVar(&r.base, "image-base", "", "first layer of the images, made earlier with -keep of scripts/image; ARCH becomes the architecture")
	chart := flag.String("chart", "", "only make the chart of a cluster, for images of this version")
	flag.StringVar(&r.program, "program", "", "use this program instead of building one (for tests)")
	flag.Parse()
	r.archs = strings.Split(*archs, ",")
	err := r.signWith(*key, os.Getenv("MINISIGN_PASSWORD"))
	if err == nil {
		err = r.trust(*also)
	}
	if err == nil && *chart != "" {
		err = r.chartAlone(*chart)
	} else if err == nil {
		err = r.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// licenses is the file with the licenses of the programs' components.
const licenses = "LICENSES.txt"

// release is one run of the command.
type release struct {
	out, version, program string
	releases              string // Optional: a folder to publish the release in
	aptKey                string // gpg key that signs the apt repository. Optional.
	level                 string // xz level of packages, 0 to 9. Optional: 6, xz's default, takes half a minute.
	archs                 []string
	images                bool      // whether to make container images
	terraform             bool      // whether to make the provider for Terraform and OpenTofu
	cluster               bool      // whether to make the chart and the images of a cluster
	base                  string    // first layer of the images. Optional.
	date                  time.Time // of the commit
	notes                 string    // release notes in Markdown

	signer *minisign.PrivateKey // Optional: nil means that nothing is signed.
	trusts string               // its public key and those of later releases, separated by commas
}

// signWith reads the secret key for signing the release.
func (r *release) signWith(file, password string) error {
	if file == "" {
		return nil
	}
	key, err := minisign.PrivateKeyFromFile(password, file)
	if err != nil {
		return fmt.Errorf("read the key that signs: %w", err)
	}
	r.signer, r.trusts = &key, key.Public().(minisign.PublicKey).String()
	return nil
}

// trust adds public keys to those that the release's program and install.sh trust.
func (r *release) trust(keys string) error {
	for key := range strings.SplitSeq(keys, ",") {
		key = strings.TrimSpace(key)
		if key == "" {
			continue
		}
		var public minisign.PublicKey
		if err := public.UnmarshalText([]byte(key)); err != nil {
			return fmt.Errorf("-trust %s: %w", key, err)
		}
		r.trusts = strings.TrimPrefix(r.trusts+","+public.String(), ",")
	}
	return nil
}

func (r *release) run() error {
	if err := r.identify(); err != nil {
		return err
	}
	if r.releases != "" { // fail before spending minutes on builds
		if err := r.mayPublish(r.releases); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "slipway-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := r.texts(work); err != nil {
		return err
	}
	if err := write(filepath.Join(work, licenses), []byte(packaging.Licenses()), 0o644); err != nil {
		return err
	}
	for _, arch := range r.archs {
		program, err := r.build(arch, work)
		if err != nil {
			return err
		}
		if err := r.archive(arch, program, work); err != nil {
			return err
		}
		if err := r.deb(arch, program, work); err != nil {
			return err
		}
		if err := r.image(arch, program); err != nil {
			return err
		}
		if arch == r.archs[0] {
			if err := r.sbom(program); err != nil {
				return err
			}
		}
	}
	if err := r.provider(work); err != nil {
		return err
	}
	if err := r.chart(); err != nil {
		return err
	}
	if err := r.installer(); err != nil {
		return err
	}
	if err := write(filepath.Join(r.out, "slipway_"+r.version+"_notes.md"), []byte(r.notes), 0o644); err != nil {
		return err
	}
	if err := r.sums(); err != nil || r.releases == "" {
		return err
	}
	return r.publish(r.releases)
}

// texts writes the manual page and the shell completions, which a program of this machine prints.
func (r *release) texts(work string) error {
	program, err := r.build(runtime.GOARCH, work)
	if err != nil {
		return err
	}
	for file, args := range map[string][]string{
		"slipway.1": {"man"}, "slipway.bash": {"completion", "bash"}, "slipway.zsh": {"completion", "zsh"}, "slipway.fish": {"completion", "fish"},
	} {
		c := exec.Command(program, args...)
		c.Env = append(os.Environ(), "HOME="+work)
		text, err := c.Output()
		if err != nil || len(text) == 0 {
			return fmt.Errorf("slipway %s: %w", strings.Join(args, " "), errors.Join(err, errors.New("no text")))
		}
		if err := write(filepath.Join(work, file), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// installer writes install.sh with the release's version and keys.
func (r *release) installer() error {
	text, err := os.ReadFile("packaging/install.sh")
	if err != nil {
		return err
	}
	text = []byte(strings.NewReplacer("@VERSION@", r.version, "@KEYS@", strings.ReplaceAll(r.trusts, ",", " ")).Replace(string(text)))
	return write(filepath.Join(r.out, "install.sh"), text, 0o755)
}

// identify determines the version and the commit's date.
func (r *release) identify() error {
	stamp, err := git("log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return err
	}
	r.date = time.Unix(seconds, 0).UTC()
	if r.version != "" {
		_, r.notes, err = changelog.Newest(".")
		return err
	}
	if r.version, err = changelog.Version("."); err != nil {
		return err
	}
	if _, r.notes, err = changelog.Newest("."); err != nil {
		return err
	}
	if !released("v" + r.version) {
		commit, err := git("rev-parse", "--short=12", "HEAD")
		if err != nil {
			return err
		}
		// The version is newer than the release for dpkg, and build metadata for semver.
		r.version += "+" + r.date.Format("20060102") + ".g" + commit
		changes, _, err := changelog.Read(".")
		if err != nil {
			return err
		}
		r.notes = changes.Text()
	}
	return nil
}

// released reports whether HEAD is a release: it has the release's tag or, in a repository without release tags, it
// changed VERSION.
func released(tag string) bool {
	if tags, err := git("tag", "--list", "v*"); err != nil || tags != "" {
		at, _ := git("tag", "--points-at", "HEAD", tag)
		return err == nil && at != ""
	}
	head, err := git("rev-parse", "HEAD")
	if err != nil {
		return false
	}
	changed, err := git("log", "-1", "--format=%H", "--diff-filter=M", "--", "VERSION")
	return err == nil && changed == head
}

// build builds the program for arch and returns its path.
func (r *release) build(arch, work string) (string, error) {
	if r.program != "" {
		return r.program, nil
	}
	env := []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch, "GOFLAGS="}
	// The sandbox's helper is a separate program embedded in ours, for the same architecture.
	if err := command(env, "go", "generate", "./internal/platform/sandbox"); err != nil {
		return "", err
	}
	program := filepath.Join(work, "slipway-"+arch)
	err := command(env, "go", "build", "-trimpath", "-buildvcs=true", "-tags", "slipway_init",
		"-ldflags", "-s -w -X main.version="+r.version+" -X main.releaseKeys="+r.trusts, "-o", program, "./cmd/slipway")
	return program, err
}

// image makes the container images for arch that are requested, and the seccomp profile of the one for a single machine.
func (r *release) image(arch, program string) error {
	if r.cluster {
		args := []string{"run", "./scripts/image", "-of", "all", "-version", r.version, "-arch", arch, "-out", r.out}
		if err := command([]string{"CGO_ENABLED=0"}, "go", args...); err != nil {
			return err
		}
	}
	if !r.images {
		return nil
	}
	profile, err := os.ReadFile("packaging/image/seccomp.json")
	if err != nil {
		return err
	}
	if err := write(filepath.Join(r.out, "slipway-seccomp.json"), profile, 0o644); err != nil {
		return err
	}
	args := []string{
		"run", "./scripts/image", "-program", program, "-version", r.version, "-arch", arch,
		"-out", filepath.Join(r.out, "slipway_"+r.version+"_"+arch+".oci.tar"),
	}
	if r.base != "" {
		args = append(args, "-base", strings.ReplaceAll(r.base, "ARCH", arch))
	}
	return command([]string{"CGO_ENABLED=0"}, "go", args...)
}

// sums writes SHA256SUMS of all files, in the format of sha256sum -c.
func (r *release) sums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		f, err := os.Open(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		h := sha256.New()
		size, err := io.Copy(h, f)
		f.Close()
		if err != nil {
			return err
		}
		fmt.Printf("  %-48s %6.1f MiB\n", e.Name(), float64(size)/(1<<20))
		lines = append(lines, fmt.Sprintf("%x  %s\n", h.Sum(nil), e.Name()))
	}
	slices.Sort(lines)
	list := []byte(strings.Join(lines, ""))
	if err := os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), list, 0o644); err != nil || r.signer == nil {
		return err
	}
	// The signed comment has no time, so that the same release has the same signature.
	signature := minisign.SignWithComments(*r.signer, list, "slipway "+r.version, "signature of SHA256SUMS of Slipway "+r.version)
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS.minisig"), signature, 0o644)
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// command runs a command with additional environment variables and shows its output.
func command(env []string, name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), env...)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
