package certs

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

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const (
	replicasDir   = "replicas"
	reportSuffix  = ".json"
	largestReport = 64 << 10
)

// DirReplicas is a Replicas in the directory "replicas" of a DirStore's directory,
// for all processes of one machine: a JSON file for each. Files of processes that
// have been away for a day and that nobody waits for any more are removed by any
// other that lists; a file that cannot be understood is one of those that are
// waited for.
type DirReplicas struct {
	// LeafLife is how long a serving certificate lasts: nobody is waited for longer
	// than that after having been heard of. Zero is a year, for whoever does not
	// know. It is set before use.
	LeafLife time.Duration

	dir, replica string
	now          func() time.Time
}

var _ Replicas = (*DirReplicas)(nil)

// NewDirReplicas looks at nothing yet. The replica is the name of this process,
// which no other one of the directory has; without a name it looks on: it cannot
// report, and List removes nothing. Now is the time by the clock on the wall; nil
// is time.Now.
func NewDirReplicas(dir, replica string, now func() time.Time) *DirReplicas {
	return &DirReplicas{dir: filepath.Join(dir, replicasDir), replica: replica, now: now}
}

// reportFile is what a file holds. Times are texts, since those of somebody else
// may be none.
type reportFile struct {
	Replica  string  `json:"replica"`
	Issuer   *string `json:"issuer"`
	SHA256   string  `json:"sha256,omitempty"`
	NotAfter string  `json:"notAfter,omitempty"`
	Seen     string  `json:"seen"`
	Version  string  `json:"version,omitempty"`
}

func (d *DirReplicas) file() string {
	return filepath.Join(d.dir, shortName("", d.replica, longestName-len(reportSuffix))+reportSuffix)
}

// Report implements Replicas.
func (d *DirReplicas) Report(_ context.Context, r *rotation.Report) error {
	report := &reportFile{Replica: d.replica, Issuer: &r.Issuer, Version: r.Version, Seen: wall(d.now).UTC().Format(time.RFC3339Nano)}
	if r.Issuer != "" {
		report.SHA256, report.NotAfter = r.SHA256, stamp(r.NotAfter)
	}
	content, err := json.MarshalIndent(report, "", "  ")
	if err == nil {
		err = os.MkdirAll(d.dir, sharedDir)
	}
	if err == nil {
		err = replaceFile(d.file(), append(content, '\n'))
	}
	if err != nil {
		return explainFile("file "+d.file(), "write", err)
	}
	return nil
}

// List implements Replicas.
func (d *DirReplicas) List(context.Context) ([]rotation.Report, error) {
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, explainFile("directory "+d.dir, "read", err)
	}
	now := wall(d.now)
	var (
		reports []rotation.Report
		removed int
	)
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
			return nil, explainFile("file "+file, "read", err)
		}
		report, over := found.report(now, d.LeafLife)
		if !over {
			reports = append(reports, report)
			continue
		}
		if removed++; removed <= tidied && d.replica != "" {
			_ = os.Remove(file) // one that has come back in the meantime writes it again
		}
	}
	sortReports(reports)
	return reports, nil
}

// readReport reads a file of somebody else.
func readReport(file string) (*told, error) {
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
	return parseReport(strings.TrimSuffix(filepath.Base(file), reportSuffix), content, info.ModTime()), nil
}

// parseReport is what a file says that was written at a time.
func parseReport(place string, content []byte, written time.Time) *told {
	var r reportFile
	if err := json.Unmarshal(content, &r); err != nil {
		r = reportFile{}
	}
	t := &told{place: place, replica: r.Replica, sha256: r.SHA256, notAfter: r.NotAfter, version: r.Version, issuer: r.Issuer, written: written}
	if seen, err := time.Parse(time.RFC3339, r.Seen); err == nil {
		t.renewed = seen
	}
	return t
}

// Leave implements Replicas.
func (d *DirReplicas) Leave(context.Context) error {
	if err := os.Remove(d.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return explainFile("file "+d.file(), "remove", err)
	}
	return nil
}
