package console

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// generated is a recording that a test writes, as large as it likes. Reviews are numbered from 0, and what is in them follows from
// their number. Those of two replicas alternate, in segments of their own.
type generated struct {
	dir   string
	begin time.Time
	step  time.Duration
	count int

	writers [generatedReplicas]*segmentWriter
}

const generatedReplicas = 2

// segmentWriter writes the segments of a replica.
type segmentWriter struct {
	file    *os.File
	out     *zstd.Encoder
	reviews int
}

// The following are what reviews have by their number.
func nameOf(i int) string      { return fmt.Sprintf("object-%07d", i) }
func namespaceOf(i int) string { return fmt.Sprintf("namespace-%d", i%7) }
func userOf(i int) string      { return fmt.Sprintf("user-%d", i%11) }
func isDenied(i int) bool      { return i%10 == 3 }

// reviewLine and denial are the lines of reviews, with places for what differs.
const (
	reviewLine = `{"review":{"id":%[1]q,"time":%[2]q,"took":%[3]d,"endpoint":"validate",%[4]s,"redacted":true,"lookups":{"noAuthorizer":true},` +
		`"request":{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":%[1]q,"kind":{"group":"","version":"v1","kind":"ConfigMap"},` +
		`"resource":{"group":"","version":"v1","resource":"configmaps"},"requestKind":{"group":"","version":"v1","kind":"ConfigMap"},` +
		`"requestResource":{"group":"","version":"v1","resource":"configmaps"},"name":%[5]q,"namespace":%[6]q,"operation":"CREATE","userInfo":{"username":%[7]q},` +
		`"object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%[5]q,"namespace":%[6]q},"data":{"value":"gatehouse-redacted:0a1b2c3d"}}}},` +
		`"response":{"uid":%[1]q,%[8]s}}}` + "\n"
	denial = `"allowed":false,"auditAnnotations":{"denied-by":%[1]q},"status":{"status":"Failure","message":%[2]q,"reason":"Invalid","code":422,` +
		`"details":{"name":%[3]q,"kind":"configmaps","causes":[{"reason":"validations[0]","field":"validations[0]","message":%[2]q}]}}`
)

// review is the line of a review.
func (g *generated) review(i int) []byte {
	uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
	decision, answer := `"decision":"allowed"`, `"allowed":true`
	if isDenied(i) {
		policy := fmt.Sprintf("policy-%d", i%3)
		decision = `"decision":"denied","reason":"Invalid"`
		answer = fmt.Sprintf(denial, policy, fmt.Sprintf("AdmissionPolicy '%s' denied request: %s breaks the rule", policy, nameOf(i)), nameOf(i))
	}
	at := g.begin.Add(time.Duration(i) * g.step).UTC().Format(time.RFC3339Nano)
	return fmt.Appendf(nil, reviewLine, uid, at, 250_000+i%1000*1000, decision, nameOf(i), namespaceOf(i), userOf(i), answer)
}

// add writes so many more reviews. They are complete on disk, as after a flush of a server, and the segments go on.
func (g *generated) add(n int) error {
	const perSegment = 20_000
	for range n {
		i := g.count
		g.count++
		w := g.writers[i%generatedReplicas]
		if w == nil || w.reviews == perSegment {
			if err := w.close(); err != nil {
				return err
			}
			var err error
			if w, err = g.newSegment(i); err != nil {
				return err
			}
			g.writers[i%generatedReplicas] = w
		}
		w.reviews++
		if _, err := w.out.Write(g.review(i)); err != nil {
			return err
		}
	}
	for _, w := range g.writers {
		if w == nil {
			continue
		}
		if err := w.out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// newSegment begins the segment that has the review i first.
func (g *generated) newSegment(i int) (*segmentWriter, error) {
	at := g.begin.Add(time.Duration(i) * g.step).UTC()
	replica := fmt.Sprintf("gatehouse-%d", i%generatedReplicas)
	file, err := os.OpenFile(filepath.Join(g.dir, at.Format("20060102T150405.000Z")+"-"+replica+".gatehouse.zst"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	out, err := zstd.NewWriter(file, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return nil, err
	}
	header, err := json.Marshal(map[string]any{"header": map[string]any{
		"format": 1, "program": "test", "kubernetes": "1.36", "cel": "v0.29.2", "source": "server", "replica": replica, "started": at,
		"redaction": map[string]any{"key": "c6e7774f", "paths": []string{"data"}}, "sampling": "all",
	}})
	if err != nil {
		return nil, err
	}
	_, err = out.Write(append(header, '\n'))
	return &segmentWriter{file: file, out: out}, err
}

func (w *segmentWriter) close() error {
	if w == nil {
		return nil
	}
	if err := w.out.Close(); err != nil {
		return err
	}
	return w.file.Close()
}

// close ends all segments.
func (g *generated) close() error {
	for i, w := range g.writers {
		g.writers[i] = nil
		if err := w.close(); err != nil {
			return err
		}
	}
	return nil
}

// generate writes a recording whose last review was just now.
func generate(t testing.TB, reviews int) *generated {
	t.Helper()
	g := &generated{dir: t.TempDir(), step: time.Millisecond}
	g.begin = time.Now().Add(-time.Duration(reviews) * g.step).Truncate(time.Millisecond)
	must(t, g.add(reviews))
	t.Cleanup(func() { must(t, g.close()) })
	return g
}
