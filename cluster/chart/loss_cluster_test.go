//go:build cluster

package chart

import (
	"cmp"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway/internal/platform/blob/s3test"
)

// lose deletes what an uninstallation leaves except the key: the namespace of programs with all volumes.
func (i *installed) lose() {
	i.t.Helper()
	namespaces := i.client.CoreV1().Namespaces()
	if err := namespaces.Delete(i.t.Context(), programs, meta.DeleteOptions{}); err != nil {
		i.t.Fatal(err)
	}
	i.until("the namespace of programs is gone", func() error {
		_, err := namespaces.Get(i.t.Context(), programs, meta.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return cmp.Or(err, errors.New("it is there"))
	})
}

// comesBack restores a backup of the installation, without the volumes' content, into another database and bucket, and
// updates the chart's values and Secret. It runs the program beside the cluster.
func (i *installed) comesBack(backup string) {
	i.t.Helper()
	secrets := i.client.CoreV1().Secrets(hosting)
	kept, err := secrets.Get(i.t.Context(), "slipway-key", meta.GetOptions{})
	if err != nil {
		i.t.Fatal(err)
	}
	dir := i.t.TempDir()
	key := filepath.Join(dir, "secrets.key")
	if err := os.WriteFile(key, kept.Data["secrets.key"], 0o600); err != nil {
		i.t.Fatal(err)
	}
	dsn, err := url.Parse(os.Getenv("SLIPWAY_TEST_DSN"))
	if err != nil {
		i.t.Fatal(err)
	}
	i.run(nil, "psql", "--host="+dsn.Query().Get("host"), "--username=postgres", "--command=CREATE DATABASE restored")
	database, bucket := i.database("restored"), i.newBucket().String()
	i.t.Log(i.run([]string{"AWS_ACCESS_KEY_ID=" + s3test.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s3test.SecretKey},
		filepath.Join(i.built, "slipway"), "backup", "restore", "--without-storage", "--from="+i.place, "--id="+backup, "--key="+key,
		"--data-dir="+filepath.Join(dir, "data"), "--database="+database, "--blobs="+bucket))

	named, err := secrets.Get(i.t.Context(), "database", meta.GetOptions{})
	if err != nil {
		i.t.Fatal(err)
	}
	named.Data["url"] = []byte(database)
	if _, err := secrets.Update(i.t.Context(), named, meta.UpdateOptions{}); err != nil {
		i.t.Fatal(err)
	}
	text, err := os.ReadFile(i.values)
	if err != nil {
		i.t.Fatal(err)
	}
	changed := strings.Replace(string(text), i.bucket, bucket, 1)
	if changed == string(text) {
		i.t.Fatalf("no bucket %s in\n%s", i.bucket, text)
	}
	if err := os.WriteFile(i.values, []byte(changed), 0o600); err != nil {
		i.t.Fatal(err)
	}
}
