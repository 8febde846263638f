package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// The names of Gatehouse among the servers.
const (
	gatehouseServer = "gatehouse"
	oldServer       = "old"
)

// server is a running process that answers reviews.
type server struct {
	kind          string // nullServer, inTreeServer, gatehouseServer or oldServer
	configuration string // empty of nullServer
	process       *gatehouse.Server
	clients       map[connection]*client
}

// connection is a kind of connections to a server.
type connection struct {
	protocol string
	// certified reports whether the client presents a certificate, if the server requests one. API servers do so for token
	// reviews, and for admission only if an administrator has told them to.
	certified bool
}

// driver holds what a run needs.
type driver struct {
	options   options
	directory string
	scenarios []scenario
	servers   []*server
	progress  io.Writer

	ca          []byte          // in PEM, of the servers and of the certificate
	certificate tls.Certificate // that clients present
}

// drive measures everything and returns the report.
func drive(ctx context.Context, o options, progress io.Writer) (*report, error) {
	directory, err := os.MkdirTemp("", "gatehouse-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	d := &driver{options: o, directory: directory, scenarios: scenarios(o.scenario), progress: progress}
	defer func() {
		for _, s := range d.servers {
			s.process.Kill()
		}
	}()
	if len(d.scenarios) == 0 {
		return nil, fmt.Errorf("--scenario %q matches nothing (hint: docs/performance.md lists the scenarios)", o.scenario)
	}
	r := &report{started: time.Now()}
	for _, step := range []func(context.Context, *report) error{d.start, d.prove, d.measure, d.readMemory, d.readRecordings} {
		if err := step(ctx, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// start starts every server that a scenario needs.
func (d *driver) start(ctx context.Context, _ *report) error {
	authority, err := cluster.NewAuthority("bench")
	if err != nil {
		return err
	}
	certificate, key, err := authority.Serve("127.0.0.1")
	if err != nil {
		return err
	}
	clientCertificate, clientKey, err := authority.Client("kube-apiserver")
	if err != nil {
		return err
	}
	d.ca, d.certificate = authority.CertPEM(), must(tls.X509KeyPair(clientCertificate, clientKey))
	certFile, keyFile, caFile := filepath.Join(d.directory, "tls.crt"), filepath.Join(d.directory, "tls.key"), filepath.Join(d.directory, "ca.crt")
	if err := errors.Join(os.WriteFile(certFile, certificate, 0o600), os.WriteFile(keyFile, key, 0o600), os.WriteFile(caFile, d.ca, 0o600)); err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	if err := d.startServer(ctx, server{kind: nullServer}, executable, nullServer, certFile, keyFile, ""); err != nil {
		return err
	}
	for _, configuration := range d.configurations(func(s scenario) bool { return s.inTree }) {
		if err := d.startServer(ctx, server{kind: inTreeServer, configuration: configuration}, executable, inTreeServer, certFile, keyFile, configuration); err != nil {
			return err
		}
	}
	for _, binary := range []struct{ kind, path string }{{gatehouseServer, d.options.gatehouse}, {oldServer, d.options.old}} {
		if binary.path == "" {
			continue
		}
		if _, err := os.Stat(binary.path); err != nil {
			return fmt.Errorf("--%s %q: %w; make build writes bin/gatehouse", binary.kind, binary.path, err)
		}
		for _, configuration := range d.configurations(func(scenario) bool { return true }) {
			documents := filepath.Join(d.directory, binary.kind+" "+configuration)
			if err := errors.Join(os.Mkdir(documents, 0o700), writeDocuments(documents, configuration, time.Now())); err != nil {
				return err
			}
			args := []string{"serve", "--config", documents, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}
			switch configuration {
			case ownCertificate:
				args = append(args, "--self-signed", "127.0.0.1", "--self-signed-dir", documents+" certificates")
			case fileCertificate:
				args = append(args, "--tls-cert", certFile, "--tls-key", keyFile)
			default:
				args = append(args, "--tls-cert", certFile, "--tls-key", keyFile, "--client-ca", caFile)
			}
			if binary.kind == gatehouseServer { // another build may not have these flags
				args = append(args, "--authorize")
				if strings.HasSuffix(configuration, recorded) {
					args = append(args, "--record", documents+recordings)
				}
			}
			if err := d.startServer(ctx, server{kind: binary.kind, configuration: configuration}, binary.path, args...); err != nil {
				return err
			}
		}
	}
	return nil
}

// configurations returns the configurations of the scenarios that a function
// selects, each once.
func (d *driver) configurations(selects func(scenario) bool) []string {
	var all []string
	for _, s := range d.scenarios {
		if selects(s) && !slices.Contains(all, s.configuration) {
			all = append(all, s.configuration)
		}
	}
	return all
}

// startTimeout is how long a program may take to start. On a busy machine the in-tree plugin compiles 1,000 policies for
// more than half a minute. A program that ends is noticed at once.
const startTimeout = 3 * time.Minute

// startServer starts a program and makes clients of it.
func (d *driver) startServer(ctx context.Context, s server, path string, args ...string) error {
	name := filepath.Join(d.directory, s.kind+" "+s.configuration)
	// Logs are not beside the configuration: gatehouse watches that directory.
	logs := filepath.Join(d.directory, "logs")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return err
	}
	starting, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("gave up after %s", startTimeout))
	defer cancel()
	var err error
	s.process, err = gatehouse.StartProgram(starting, path, filepath.Join(logs, filepath.Base(name)+".log"), args...)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", s.kind, s.configuration, err)
	}
	d.servers = append(d.servers, &s)
	ca := d.ca
	if s.configuration == ownCertificate {
		if ca, err = os.ReadFile(filepath.Join(name+" certificates", "ca.crt")); err != nil { //nolint:gosec // in the directory that this run made
			return err
		}
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return fmt.Errorf("%s, %s: no certificate in its CA", s.kind, s.configuration)
	}
	s.clients = map[connection]*client{}
	for _, protocol := range []string{http1, http2} {
		s.clients[connection{protocol, false}] = newClient(s.process.Reviews.String(), protocol, roots)
		s.clients[connection{protocol, true}] = newClient(s.process.Reviews.String(), protocol, roots, d.certificate)
	}
	return nil
}

// serversOf returns the servers that a scenario is measured on, null first.
func (d *driver) serversOf(s scenario) []*server {
	var servers []*server
	for _, server := range d.servers {
		if server.kind == nullServer ||
			server.configuration == s.configuration && (server.kind != inTreeServer || s.inTree) && (server.kind != oldServer || s.path != pathAuthorize) {
			servers = append(servers, server)
		}
	}
	return servers
}

// load returns what is sent to a server in a scenario. The null webhook answers
// every review with yes.
func (s scenario) load(server *server, duration time.Duration) load {
	l := load{client: server.clients[connection{s.protocol, s.path == pathAuthenticate || s.path == pathAuthorize}], path: s.path, review: s.review, wants: s.wants, concurrency: s.concurrency, duration: duration}
	if server.kind == nullServer {
		l.path, l.wants = cmp.Or(s.nullPath, s.path), wants{user: s.wants.user, access: s.wants.access}
	}
	return l
}

// prove checks one answer of every server in every scenario, so that a webhook
// that does nothing does not win.
func (d *driver) prove(ctx context.Context, _ *report) error {
	for _, s := range d.scenarios {
		for _, server := range d.serversOf(s) {
			if err := proveAnswers(ctx, s.load(server, 0), s, server.kind == nullServer); err != nil {
				return d.failure(server, s, err)
			}
		}
	}
	return nil
}

// proveAnswers checks one answer of a server in a scenario: it must be right, its
// patch must add what it is to add, and a review that the scenario's
// configuration refuses must be refused.
func proveAnswers(ctx context.Context, l load, s scenario, isNull bool) error {
	if s.path == "" {
		return l.client.handshake(ctx)
	}
	uid := ""
	if bytes.Contains(s.review, []byte(placeholderUID)) {
		uid = placeholderUID
	}
	text, err := l.client.post(ctx, l.path, s.review)
	if err != nil {
		return err
	}
	a, err := checkAnswer(text, uid, l.wants)
	if err != nil || isNull {
		return err
	}
	if s.wants.patch() {
		if err := checkInjected(s, a.Response.Patch); err != nil {
			return fmt.Errorf("wrong patch: %w", err)
		}
	}
	if s.refused == nil {
		return nil
	}
	if text, err = l.client.post(ctx, l.path, s.refused); err != nil {
		return err
	}
	a, err = checkAnswer(text, uid, l.wants)
	hasReason := uid == "" || a.Response != nil && a.Response.Result != nil && a.Response.Result.Message != ""
	if err == nil || a.Kind == "" || a.Status.Error != "" || !hasReason {
		return fmt.Errorf("wrong answer: a review that must be refused, with a reason, got %q", excerpt(text))
	}
	return nil
}

// checkInjected applies a patch to the pod of the scenario and checks what it
// adds.
func checkInjected(s scenario, patch []byte) error {
	var review struct {
		Request struct {
			Object json.RawMessage `json:"object"`
		} `json:"request"`
	}
	if err := json.Unmarshal(s.review, &review); err != nil {
		return err
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return err
	}
	patched, err := operations.Apply(review.Request.Object)
	if err != nil {
		return err
	}
	var pod corev1.Pod
	if err := json.Unmarshal(patched, &pod); err != nil {
		return err
	}
	for _, name := range s.wants.adds {
		if !slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name }) {
			return fmt.Errorf("no init container %q after %q", name, excerpt(patch))
		}
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }) {
			return fmt.Errorf("no volume %q after %q", name, excerpt(patch))
		}
	}
	for _, text := range s.wants.sets {
		if !bytes.Contains(patched, []byte(text)) || bytes.Contains(review.Request.Object, []byte(text)) {
			return fmt.Errorf("no %s more than before after %q", text, excerpt(patch))
		}
	}
	return nil
}

// measure runs the rounds. A round is every scenario once on each of its
// servers, so that a slow minute of the machine affects all; the server that
// comes first rotates.
func (d *driver) measure(ctx context.Context, r *report) error {
	for _, s := range d.scenarios {
		r.results = append(r.results, result{scenario: s.name, samples: map[string][]sample{}})
	}
	for range d.options.rounds {
		for number, s := range d.scenarios {
			servers := d.serversOf(s)
			for turn := range servers {
				server := servers[(turn+r.rounds+number)%len(servers)]
				sample, err := d.sample(ctx, s, server)
				if err != nil {
					return d.failure(server, s, err)
				}
				r.results[number].samples[server.kind] = append(r.results[number].samples[server.kind], sample)
			}
		}
		r.rounds++
		_, _ = fmt.Fprintf(d.progress, "round %d of %d done after %v\n", r.rounds, d.options.rounds, time.Since(r.started).Round(time.Second))
	}
	return nil
}

// sample measures one scenario on one server once, after a quarter of the time to
// warm up connections, pools and heap to this scenario.
func (d *driver) sample(ctx context.Context, s scenario, server *server) (sample, error) {
	if _, err := s.load(server, d.options.duration/4).run(ctx); err != nil {
		return sample{}, err
	}
	// Asking for the allocations allocates too. What that takes is measured by
	// asking twice; the first time may have other costs.
	var asked [4]allocations
	var err error
	for i := range 3 {
		if asked[i], err = server.allocations(ctx); err != nil {
			return sample{}, err
		}
	}
	before, err := processTime(server.process.PID())
	if err != nil {
		return sample{}, err
	}
	latencies, err := s.load(server, d.options.duration).run(ctx)
	if err != nil {
		return sample{}, err
	}
	after, err := processTime(server.process.PID())
	if err != nil {
		return sample{}, err
	}
	if asked[3], err = server.allocations(ctx); err != nil {
		return sample{}, err
	}
	slices.Sort(latencies)
	return sample{
		requests:    len(latencies),
		cpu:         after - before,
		p50:         latencies[(len(latencies)-1)*50/100],
		p99:         latencies[(len(latencies)-1)*99/100],
		allocations: asked[3].minus(asked[2]).minus(asked[2].minus(asked[1])),
	}, nil
}

// allocations asks a server what it has allocated since it started.
func (s *server) allocations(ctx context.Context) (allocations, error) {
	_, text, err := s.process.Get(ctx, "/metrics")
	if err != nil {
		return allocations{}, err
	}
	objects, err := gatehouse.Sum(text, "go_memstats_mallocs_total")
	if err != nil {
		return allocations{}, err
	}
	bytes, err := gatehouse.Sum(text, "go_memstats_alloc_bytes_total")
	return allocations{objects, bytes}, err
}

// processTime returns the processor time that a process has used, in nanoseconds
// where /proc/PID/stat counts hundredths of a second: the sum over its threads. It
// waits before that, because the kernel brings a thread's time up to date when the
// thread stops, or at its next tick, 1 to 4 ms away.
func processTime(pid int) (time.Duration, error) {
	<-time.After(5 * time.Millisecond)
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		return 0, err
	}
	var total time.Duration
	for _, thread := range threads {
		statistics, err := thread.Schedstat()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, err
		}
		total += time.Duration(statistics.RunningNanoseconds) //nolint:gosec // years
	}
	return total, nil
}

// recordings ends the names of the directories of recordings.
const recordings = " recording"

// readRecordings notes how many bytes a recorded review has on disk.
func (d *driver) readRecordings(ctx context.Context, r *report) error {
	var bytes, reviews float64
	for _, server := range d.servers {
		if server.kind != gatehouseServer || !strings.HasSuffix(server.configuration, recorded) {
			continue
		}
		if bytes == 0 {
			<-time.After(3 * time.Second) // what is in memory is written every two seconds
		}
		files, err := filepath.Glob(filepath.Join(d.directory, server.kind+" "+server.configuration+recordings, "*.zst"))
		if err != nil {
			return err
		}
		for _, name := range files {
			info, err := os.Stat(name)
			if err != nil {
				return err
			}
			bytes += float64(info.Size())
		}
		n, err := server.process.Metric(ctx, "gatehouse_record_reviews_total", `result="recorded"`)
		if err != nil {
			return err
		}
		dropped, err := server.process.Metric(ctx, "gatehouse_record_dropped_total")
		if err != nil {
			return err
		}
		if dropped > 0 {
			return fmt.Errorf("%s: %g reviews of %g were not recorded", server.configuration, dropped, n+dropped)
		}
		reviews += n
	}
	if reviews > 0 {
		r.diskBytes = bytes / reviews
	}
	return nil
}

// readMemory records how much memory every server holds.
func (d *driver) readMemory(_ context.Context, r *report) error {
	for _, server := range d.servers {
		process, err := procfs.NewProc(server.process.PID())
		if err != nil {
			return err
		}
		status, err := process.NewStatus()
		if err != nil {
			return err
		}
		own := func(resident uint64) float64 { return float64(resident-status.RssFile) / (1 << 20) }
		r.memory = append(r.memory, memory{server.kind, server.configuration, own(status.VmRSS), own(status.VmHWM)})
	}
	return nil
}

// failure returns an error with the scenario and the end of the server's log.
func (d *driver) failure(server *server, s scenario, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	log, _ := os.ReadFile(server.process.Log()) // a missing log must not hide the error
	return fmt.Errorf("%s in scenario %s: %w\n%s", server.kind, s.name, err, strings.TrimSpace(string(log[max(0, len(log)-2_000):])))
}
