package store

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const (
	replicasDir   = "replicas"
	reportSuffix  = ".json"
	largestReport = 64 << 10
)

// DirReplicas is a Replicas in the directory "replicas" of a DirStore's directory,
// for all processes of one machine: a JSON file for each, whose name is that of the
// replica and a random suffix. So two processes of one name, which is the machine's by
// default, are both listed.
//
// The file of a process that was killed is removed by its successor of the same
// name, once it has been silent for 4*ReportInterval; one that lives and was stopped
// for so long writes it again. List removes files of processes that have been unreachable
// for a day and whose certificates have ended. A rotation waits for a file that cannot be
// parsed.
type DirReplicas struct {
	// LeafLife is that of LeasesConfig. It is set before use.
	LeafLife time.Duration

	dir, replica string
	// file is that of this process.
	file  string
	now   func() time.Time
	stale staleReports
}

var _ Replicas = (*DirReplicas)(nil)

// NewDirReplicas reads nothing yet. The replica is the name of this process; without one
// the result cannot report, and its List removes nothing. now returns the time by the wall
// clock; nil is time.Now.
func NewDirReplicas(dir, replica string, now func() time.Time) *DirReplicas {
	d := &DirReplicas{dir: filepath.Join(dir, replicasDir), replica: replica, now: now}
	end := "-" + newInstance() + reportSuffix
	d.file = filepath.Join(d.dir, shortName("", replica, longestName-len(end))+end)
	return d
}

// reportFile is the content of a file. Times are strings, because they may be invalid.
type reportFile struct {
	Replica  string  `json:"replica"`
	Issuer   *string `json:"issuer"`
	SHA256   string  `json:"sha256,omitempty"`
	NotAfter string  `json:"notAfter,omitempty"`
	Seen     string  `json:"seen"`
	Version  string  `json:"version,omitempty"`
}

// Report implements Replicas.
func (d *DirReplicas) Report(ctx context.Context, r *rotation.Report) error {
	report := &reportFile{Replica: d.replica, Issuer: &r.Issuer, Version: r.Version, Seen: clock.Wall(d.now).UTC().Format(time.RFC3339Nano)}
	if r.Issuer != "" {
		report.SHA256, report.NotAfter = r.SHA256, clock.Stamp(r.NotAfter)
	}
	content, err := json.MarshalIndent(report, "", "  ")
	if err == nil {
		err = os.MkdirAll(d.dir, sharedDir)
	}
	if err == nil {
		err = replaceFile(d.file, append(content, '\n'), privateFile)
	}
	if err != nil {
		return fileError("file "+d.file, "write", err)
	}
	if own, err := readReport(d.file); err == nil {
		d.stale.remove(ctx, clock.Monotonic(d.now), own, d)
	}
	return nil
}

// List implements Replicas.
func (d *DirReplicas) List(ctx context.Context) ([]rotation.Report, error) {
	return listReports(ctx, d, clock.Wall(d.now), d.LeafLife, d.replica != "")
}

// each reads all files.
func (d *DirReplicas) each(_ context.Context, do func(*storedReport)) error {
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fileError("directory "+d.dir, "read", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if !entry.Type().IsRegular() || strings.HasPrefix(name, ".") || !strings.HasSuffix(name, reportSuffix) {
			continue
		}
		file := filepath.Join(d.dir, name)
		found, err := readReport(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has left
		}
		if err != nil {
			return fileError("file "+file, "read", err)
		}
		do(found)
	}
	return nil
}

// readReport reads a file of another replica.
func readReport(file string) (*storedReport, error) {
	f, err := os.Open(file) //nolint:gosec // in a directory that whoever starts the program names
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, largestReport))
	if err != nil {
		return nil, err
	}
	t := parseReport(strings.TrimSuffix(filepath.Base(file), reportSuffix), content, info.ModTime())
	t.location = file
	t.remove = func(context.Context) {
		if info, err := os.Stat(file); err == nil && info.ModTime().Equal(t.written) {
			_ = os.Remove(file)
		}
	}
	return t, nil
}

// parseReport parses a file that was written at a time.
func parseReport(place string, content []byte, written time.Time) *storedReport {
	var r reportFile
	if err := json.Unmarshal(content, &r); err != nil {
		r = reportFile{}
	}
	t := &storedReport{place: place, replica: r.Replica, sha256: r.SHA256, notAfter: r.NotAfter, version: r.Version, issuer: r.Issuer, written: written}
	if seen, err := time.Parse(time.RFC3339, r.Seen); err == nil {
		t.claimed = seen
	}
	return t
}

// Leave implements Replicas.
func (d *DirReplicas) Leave(context.Context) error {
	if err := os.Remove(d.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileError("file "+d.file, "remove", err)
	}
	return nil
}
