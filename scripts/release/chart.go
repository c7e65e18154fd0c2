package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// chartFolder has the sources of the chart for Helm.
const chartFolder = "cluster/chart/slipway"

// chartAlone makes the chart of a version and nothing else, and keeps what is in the folder.
func (r *release) chartAlone(version string) error {
	r.version, r.cluster = version, true
	if err := r.identify(); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	return r.chart()
}

// chart writes slipway-VERSION.tgz: the chart for Helm, which installs the images of the same version. `helm package`
// would write the files' own times, so that the same commit made different bytes in each folder.
func (r *release) chart() error {
	if !r.cluster {
		return nil
	}
	about, err := os.ReadFile(filepath.Join(chartFolder, "Chart.yaml"))
	if err != nil {
		return err
	}
	for _, line := range [][2]string{{"\nversion: 0.0.0\n", "\nversion: " + r.version + "\n"}, {"\nappVersion: dev # ", "\nappVersion: " + r.version + " # "}} {
		if bytes.Count(about, []byte(line[0])) != 1 {
			return fmt.Errorf("%s/Chart.yaml has no line %q", chartFolder, line[0])
		}
		about = bytes.Replace(about, []byte(line[0]), []byte(line[1]), 1)
	}
	var file bytes.Buffer
	z, err := gzip.NewWriterLevel(&file, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	head := &tar.Header{Name: "slipway/Chart.yaml", Mode: 0o644, Size: int64(len(about)), ModTime: r.date, Format: tar.FormatPAX}
	if err := t.WriteHeader(head); err != nil {
		return err
	}
	if _, err := t.Write(about); err != nil {
		return err
	}
	for _, name := range []string{"LICENSE", "NOTICE"} {
		if err := r.add(t, name, "slipway/"+name, 0o644); err != nil {
			return err
		}
	}
	files, err := git("ls-files", chartFolder)
	if err != nil {
		return err
	}
	for _, path := range strings.Fields(files) {
		name := strings.TrimPrefix(path, chartFolder+"/")
		if name == "Chart.yaml" {
			continue
		}
		if err := r.add(t, path, "slipway/"+name, 0o644); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return write(filepath.Join(r.out, "slipway-"+r.version+".tgz"), file.Bytes(), 0o644)
}
