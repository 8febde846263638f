package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/replicas"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// fileTime is the format of times in file names.
const fileTime = "20060102T150405Z"

// getFlags are what the command line of record get says.
type getFlags struct {
	cli.ClusterFlags
	namespace, selector, file, since, output string
	opsPort                                  int
	force                                    bool

	now func() time.Time
	// after is the time of --since.
	after  time.Time
	labels labels.Selector
}

func newGetCommand(s cli.Streams) *cobra.Command {
	f := getFlags{now: time.Now}
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Fetch the recordings of all replicas into one file",
		Long: `Get fetches the recordings that the replicas of Gatehouse in a cluster have written,
and joins them into one file: the segments in the order in which they were begun, each
with its reviews in the order in which they were answered, the configurations that were
active and what was looked up. 'zstdcat FILE | jq' reads it.

Get uses your kubeconfig and your rights: you need list on pods and create on
pods/portforward in the namespace of Gatehouse. It connects as kubectl port-forward
does, without opening a port on this machine. The servers must run with --record.

If a replica cannot be reached, or a file of it cannot be read to its end, get names
it, writes everything else and exits with 2. Get fetches to temporary files beside the
output: the disk needs space for twice the size of the recordings.

Exit codes: 0 fetched, 1 the replicas have recorded nothing, 2 bad usage, no replica
was found, or not everything could be fetched.`,
		Example: `  # fetch everything from the cluster of the current context
  gatehouse record get

  # the last day, into a file of your choice
  gatehouse record get --context prod --since 24h -f prod.gatehouse.zst

  # then try a configuration
  gatehouse replay --config ./candidate prod.gatehouse.zst`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.run(cmd.Context(), s)
		},
	}
	f.Add(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", replicas.Namespace, "namespace of the servers")
	flags.StringVarP(&f.selector, "selector", "l", replicas.Selector, "labels of the pods of the servers")
	flags.IntVar(&f.opsPort, "ops-port", 0, "port of --ops-listen in the pods (default the container port named ops, or 8080)")
	flags.StringVarP(&f.file, "output-file", "f", "", "file to write (default gatehouse-recording-TIME"+record.SegmentSuffix+")")
	flags.BoolVar(&f.force, "force", false, "replace the file if it exists")
	flags.StringVar(&f.since, "since", "", "fetch only reviews since this time, as in 2026-11-20T12:00:00Z, or in this time before now, as in 24h or 7d")
	cli.AddOutputFlag(cmd, &f.output, "text", "json")
	return cmd
}

// check returns everything that is wrong with the flags.
func (f *getFlags) check() error {
	problems := cli.Problems{f.Check()}
	problems.Add(f.opsPort < 0 || f.opsPort > math.MaxUint16, "--ops-port %d: must be from 1 to 65535", f.opsPort)
	var err error
	f.labels, err = labels.Parse(f.selector)
	problems.Add(err != nil || f.selector == "", "--selector %q: must be a label selector such as app.kubernetes.io/name=gatehouse", f.selector)
	now := f.now()
	if f.since != "" {
		f.after, err = cli.ParseTime(f.since, now)
		problems.Add(err != nil, "--since %q: %w", f.since, err)
	}
	f.file = cmp.Or(f.file, "gatehouse-recording-"+now.UTC().Format(fileTime)+record.SegmentSuffix)
	return append(problems, checkOutput(f.file, f.force)).Err()
}

// checkOutput returns an error if a file exists and must not be replaced, or its directory does not
// exist.
func checkOutput(path string, force bool) error {
	if err := cli.CheckDir("--output-file", filepath.Dir(path)); err != nil {
		return err
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--output-file: %q cannot be read: %w", path, cli.Cause(err))
	case info.IsDir():
		return fmt.Errorf("--output-file: %q is a directory", path)
	case !force:
		return fmt.Errorf("--output-file: %q exists (hint: --force replaces it)", path)
	default:
		return nil
	}
}

// getResult is what record get has done, for -o json.
type getResult struct {
	// File is "" if there were no reviews.
	File    string     `json:"file,omitempty"`
	Reviews int64      `json:"reviews"`
	Begin   *time.Time `json:"begin,omitempty"`
	End     *time.Time `json:"end,omitempty"`
	// Gaps is the number of reviews that servers could not record.
	Gaps     int64           `json:"gaps,omitempty"`
	Replicas []replicaResult `json:"replicas"`
	Problems []string        `json:"problems,omitempty"`
}

// replicaResult is what was fetched from a replica.
type replicaResult struct {
	Name     string `json:"name"`
	Segments int    `json:"segments"`
	Bytes    int64  `json:"bytes"`
}

// run fetches and joins.
func (f *getFlags) run(ctx context.Context, s cli.Streams) error {
	cluster, err := f.cluster()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(f.file), ".gatehouse-record-")
	if err != nil {
		return fmt.Errorf("--output-file: the directory of %q cannot be written to: %w", f.file, cli.Cause(err))
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a directory that is left harms nobody
	c := &collection{flags: f, dir: dir, line: cli.NewLiveLine(s.Err)}
	defer c.line.Clear()
	if err := c.fetch(ctx, cluster); err != nil {
		return err
	}
	joined, err := c.join(ctx)
	if err != nil {
		return errors.Join(append(c.problems, err)...)
	}
	c.line.Clear()
	return c.report(s, &joined)
}

// cluster returns the servers of the cluster.
func (f *getFlags) cluster() (*replicas.Cluster, error) {
	access, err := f.Connect("--in-cluster in a pod")
	if err != nil {
		return nil, err
	}
	access.UserAgent = "gatehouse-record/" + build.Version()
	cluster, err := replicas.NewCluster(access)
	if err != nil {
		return nil, err
	}
	cluster.Places, cluster.OpsPort = []replicas.Place{{Namespace: f.namespace, Labels: f.labels}}, f.opsPort
	return cluster, nil
}

// collection is the state of record get.
type collection struct {
	flags *getFlags
	// dir is for temporary files.
	dir  string
	line *cli.LiveLine
	// state is what was fetched.
	state    replicas.MirrorState
	problems []error
}

const (
	// attempts is how often files are fetched. Later attempts go on where the last one ended.
	attempts = 3
	// maxRecordings is more than any disk has.
	maxRecordings = 1 << 50
)

// fetch fetches the files of all replicas to the directory.
func (c *collection) fetch(ctx context.Context, cluster *replicas.Cluster) error {
	mirror := replicas.NewMirror(cluster, c.dir, c.flags.now)
	mirror.MaxBytes, mirror.Since = maxRecordings, c.flags.after
	var arrived atomic.Int64
	mirror.Progress = func(n int64) {
		now := arrived.Add(n)
		c.line.Show(func() string {
			const mib = 1 << 20
			return fmt.Sprintf("fetching: %.1f MiB", float64(now)/mib)
		})
	}
	for attempt := 1; ; attempt++ {
		mirror.Sync(ctx)
		c.state = mirror.State()
		if len(c.state.Problems) == 0 || attempt == attempts || !sleep.Context(ctx, time.Second) {
			break
		}
	}
	c.problems = slices.Concat(c.state.Problems, c.state.Off)
	if c.state.LeftOut > 0 {
		c.problems = append(c.problems, fmt.Errorf("%s: not fetched: their sizes are impossible", diagnostic.Count(c.state.LeftOut, "segment")))
	}
	slices.SortFunc(c.problems, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	switch {
	case ctx.Err() != nil:
		return errors.Join(append(c.problems, context.Cause(ctx))...)
	case c.state.Replicas > 0:
		return nil
	case len(c.problems) > 0:
		return errors.Join(c.problems...)
	default:
		return fmt.Errorf("no running pod in namespace %q has the labels %s (hint: --namespace and --selector name the servers)", c.flags.namespace, c.flags.labels)
	}
}

// join writes the recording.
func (c *collection) join(ctx context.Context) (joined, error) {
	var files []string
	replica := map[string]string{}
	for _, one := range c.state.Files {
		path := filepath.Join(c.dir, one.Name)
		files, replica[path] = append(files, path), one.Replica
	}
	out, err := join(ctx, c.flags.file, files, c.flags.after, func(file string, err error) {
		c.problems = append(c.problems, fmt.Errorf("replica %s: %s: %w", replica[file], filepath.Base(file), err))
	}, func(reviews int64) {
		c.line.Show(func() string { return fmt.Sprintf("joining: %d reviews", reviews) })
	})
	if errors.Is(err, errNothing) {
		err = nil
	}
	return out, err
}

// report prints what was fetched.
func (c *collection) report(s cli.Streams, joined *joined) error {
	r := getResult{Reviews: joined.reviews, Gaps: joined.gaps, Replicas: []replicaResult{}}
	for _, replica := range c.state.Recording {
		result := replicaResult{Name: replica}
		for _, one := range c.state.Files {
			if one.Replica == replica {
				result.Segments, result.Bytes = result.Segments+1, result.Bytes+one.Bytes
			}
		}
		r.Replicas = append(r.Replicas, result)
	}
	if joined.reviews > 0 {
		r.File, r.Begin, r.End = c.flags.file, &joined.begin, &joined.end
	}
	var problems []string
	for _, problem := range c.problems {
		r.Problems = append(r.Problems, problem.Error())
		problems = append(problems, cli.OneLine(problem.Error()))
	}
	if err := c.print(s, &r); err != nil {
		return err
	}
	switch {
	case len(c.problems) > 0:
		return &cli.ExitError{Code: cli.ExitUnknown, Err: fmt.Errorf("not everything was fetched:\n  %s%s", strings.Join(problems, "\n  "), c.hint())}
	case r.Reviews == 0:
		return &cli.ExitError{Code: cli.ExitNo, Err: errors.New("no reviews were recorded in that time (hint: serve writes within 2 seconds; record get without --since fetches everything)")}
	default:
		return nil
	}
}

// print prints the result.
func (c *collection) print(s cli.Streams, r *getResult) error {
	if c.flags.output == "json" {
		return cli.WriteJSON(s.Out, r)
	}
	if r.File == "" {
		return nil
	}
	_, err := fmt.Fprintf(s.Out, "%s: %d reviews of %s, %s to %s\n", cli.OneLine(r.File), r.Reviews, diagnostic.Count(len(r.Replicas), "replica"), cli.FormatTime(r.Begin), cli.FormatTime(r.End))
	if err == nil && r.Gaps > 0 {
		_, err = fmt.Fprintf(s.Out, "%d more reviews are missing: the servers could not record them\n", r.Gaps)
	}
	return err
}

// hint returns what to do about the problems. The error of a connection that the API server refuses is
// only text, because SPDY has no other.
func (c *collection) hint() string {
	if !slices.ContainsFunc(c.problems, func(err error) bool {
		return strings.Contains(err.Error(), ` cannot create resource "pods/portforward" `)
	}) {
		return ""
	}
	return "\n(hint: " + apierr.BindHint(apierr.RoleConsole, c.flags.namespace, "create", "pods/portforward") + ")"
}
