package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
)

// driver holds what a run needs.
type driver struct {
	options   options
	scenarios []scenario
	servers   []*server
	report    *report
	progress  io.Writer
	nextUID   int
}

// drive measures and prints the report.
func drive(ctx context.Context, o options, stdout, stderr io.Writer) error {
	selected, err := scenarios(o.scenario)
	if err != nil {
		return err
	}
	directory, err := os.MkdirTemp("", "gatehouse-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	d := &driver{options: o, scenarios: selected, progress: stderr, report: newReport(selected)}
	defer func() {
		for _, s := range d.servers {
			s.stop()
		}
	}()
	if len(compilations(o.scenario)) > 0 {
		if d.report.Compilations, err = compileAlone(ctx, o, stderr); err != nil {
			return err
		}
	}
	if err := d.startServers(ctx, directory); err != nil {
		return err
	}
	if err := d.prove(ctx); err != nil {
		return err
	}
	if err := d.measure(ctx); err != nil {
		return err
	}
	if err := d.readMemory(); err != nil {
		return err
	}
	d.report.finish()
	if err := d.write(stdout); err != nil {
		return err
	}
	if o.check && !d.report.Passed {
		return errMissed
	}
	return nil
}

// startServers starts every server that a selected scenario needs.
func (d *driver) startServers(ctx context.Context, directory string) error {
	if len(d.scenarios) == 0 {
		return nil
	}
	modes := []string{nullServer}
	if d.options.usual && slices.ContainsFunc(d.scenarios, func(s scenario) bool { return s.usual }) {
		modes = append(modes, usualServer)
	}
	for _, mode := range modes {
		s, err := startChild(ctx, d.options.executable, mode, directory)
		if err != nil {
			return err
		}
		d.servers = append(d.servers, s)
	}
	for _, kind := range []string{gatehouseServer, oldServer} {
		if err := d.startGatehouse(ctx, kind, directory); err != nil {
			return err
		}
	}
	return nil
}

// startGatehouse starts one of the two binaries with every configuration that a
// selected scenario needs, unless there is no such binary.
func (d *driver) startGatehouse(ctx context.Context, kind, directory string) error {
	binary := d.options.gatehouse
	if kind == oldServer {
		binary = d.options.old
	}
	if binary == "" {
		return nil
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("--%s %q: %w; make build writes bin/gatehouse", kind, binary, err)
	}
	d.report.Versions[kind] = ""
	if text, err := exec.CommandContext(ctx, binary, "version").Output(); err == nil { //nolint:gosec // the program to measure, named by who runs this
		d.report.Versions[kind] = strings.TrimSpace(string(text))
	}
	var configurations []string
	for _, s := range d.scenarios {
		if !slices.Contains(configurations, s.configuration) {
			configurations = append(configurations, s.configuration)
		}
	}
	for _, configuration := range configurations {
		s, err := newGatehouse(ctx, kind, binary, configuration, directory)
		if err != nil {
			return err
		}
		d.servers = append(d.servers, s)
	}
	return nil
}

// serversOf returns the servers that a scenario is measured on, null first.
func (d *driver) serversOf(s scenario) []*server {
	var servers []*server
	for _, server := range d.servers {
		switch server.kind {
		case usualServer:
			if !s.usual {
				continue
			}
		case gatehouseServer, oldServer:
			if server.configuration != s.configuration {
				continue
			}
		}
		servers = append(servers, server)
	}
	return servers
}

// load returns what is posted to a server in a scenario.
func (d *driver) load(s scenario, server *server, requests int) (load, error) {
	c, err := server.client(s.protocol)
	if err != nil {
		return load{}, err
	}
	l := load{
		client: c, path: s.path, body: s.body, wants: s.wants,
		concurrency: s.concurrency, requests: requests, firstUID: d.nextUID, handshake: s.handshake,
	}
	if server.kind == nullServer {
		l.wants = l.wants.ofNull()
		l.path = cmp.Or(s.nullPath, s.path)
	}
	d.nextUID += requests
	return l, nil
}

// prove looks closely at one answer of every server in every scenario: it must
// be right, its patch must add what it is to add, and a review that
// the scenario's configuration refuses must be refused. A webhook that
// did none of its work would otherwise win.
func (d *driver) prove(ctx context.Context) error {
	for _, s := range d.scenarios {
		for _, server := range d.serversOf(s) {
			l, err := d.load(s, server, 1)
			if err == nil {
				err = proveAnswers(ctx, l, s, server.kind == nullServer)
			}
			if err != nil {
				return d.failure(server, s, err)
			}
		}
	}
	return nil
}

// proveAnswers is prove for one server and scenario.
func proveAnswers(ctx context.Context, l load, s scenario, constant bool) error {
	if s.handshake {
		return l.client.handshake(ctx)
	}
	uid := ""
	if s.body.uidAt >= 0 {
		uid = placeholderUID
	}
	text, err := l.client.post(ctx, l.path, s.body.text)
	if err != nil {
		return err
	}
	if err := checkAnswer(text, uid, l.wants); err != nil {
		return err
	}
	if constant {
		return nil
	}
	if l.wants.patch {
		if err := checkInjected(s, text); err != nil {
			return fmt.Errorf("wrong patch: %w", err)
		}
	}
	if s.refused.text == nil {
		return nil
	}
	text, err = l.client.post(ctx, l.path, s.refused.text)
	if err != nil {
		return err
	}
	if checkAnswer(text, uid, l.wants) == nil {
		return fmt.Errorf("wrong answer: a review that must be refused got %s", excerpt(text))
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil || a.Status.Error != "" || uid != "" && (a.Response == nil || a.Response.Status.Message == "") {
		return fmt.Errorf("wrong answer: a review that must be refused, with a reason, got %s", excerpt(text))
	}
	return nil
}

// checkInjected applies the patch of an answer to the pod of the scenario and
// looks for what it is to add.
func checkInjected(s scenario, text []byte) error {
	var request struct {
		Request struct {
			Object json.RawMessage `json:"object"`
		} `json:"request"`
	}
	if err := json.Unmarshal(s.body.text, &request); err != nil {
		return err
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return err
	}
	patch, err := jsonpatch.DecodePatch(a.Response.Patch)
	if err != nil {
		return err
	}
	patched, err := patch.Apply(request.Request.Object)
	if err != nil {
		return err
	}
	var pod corev1.Pod
	if err := json.Unmarshal(patched, &pod); err != nil {
		return err
	}
	for _, name := range s.adds {
		if !slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name }) {
			return fmt.Errorf("no init container %q after %s", name, excerpt(a.Response.Patch))
		}
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }) {
			return fmt.Errorf("no volume %q after %s", name, excerpt(a.Response.Patch))
		}
	}
	for _, text := range s.sets {
		if !bytes.Contains(patched, []byte(text)) || bytes.Contains(request.Request.Object, []byte(text)) {
			return fmt.Errorf("no %s more than before after %s", text, excerpt(a.Response.Patch))
		}
	}
	return nil
}

// measure runs the rounds. A round is every scenario once on each of its
// servers, so that a slow minute of the machine falls on all; who comes first
// rotates. A round that would end after the limit, were it as long as the
// longest before, is not started; the first always is.
func (d *driver) measure(ctx context.Context) error {
	if len(d.scenarios) == 0 {
		return nil
	}
	begin := time.Now()
	var longest time.Duration
	for round := range d.options.rounds {
		started := time.Now()
		if round > 0 && started.Sub(begin)+longest > d.options.limit {
			d.say("stopped after %d of %d rounds: another would end after the limit of %v\n", round, d.options.rounds, d.options.limit)
			break
		}
		for number, s := range d.scenarios {
			if d.options.interactive {
				d.say("\r\x1b[Kround %d of %d, scenario %d of %d: %s", round+1, d.options.rounds, number+1, len(d.scenarios), s.name)
			}
			servers := d.serversOf(s)
			for turn := range servers {
				server := servers[(turn+round+number)%len(servers)]
				sample, err := d.sample(ctx, s, server)
				if err != nil {
					return d.failure(server, s, err)
				}
				sample.Round = round + 1
				d.report.add(number, server.kind, sample)
			}
		}
		if d.options.interactive {
			d.say("\r\x1b[K")
		}
		d.report.Rounds++
		longest = max(longest, time.Since(started))
		d.say("round %d of %d done after %v\n", round+1, d.options.rounds, time.Since(begin).Round(time.Second))
	}
	return nil
}

// sample measures one scenario on one server once, after a tenth as many
// requests to warm up connections, pools and heap to this scenario.
func (d *driver) sample(ctx context.Context, s scenario, server *server) (sample, error) {
	requests := max(d.options.requests/s.divisor, s.concurrency)
	warm, err := d.load(s, server, max(requests/10, s.concurrency))
	if err != nil {
		return sample{}, err
	}
	if _, err := warm.run(ctx); err != nil {
		return sample{}, err
	}
	measured, err := d.load(s, server, requests)
	if err != nil {
		return sample{}, err
	}
	allocated, err := server.metering(ctx)
	if err != nil {
		return sample{}, err
	}
	before, err := settledTime(server.process.Process.Pid)
	if err != nil {
		return sample{}, err
	}
	start := time.Now()
	latencies, err := measured.run(ctx)
	if err != nil {
		return sample{}, err
	}
	wall := time.Since(start)
	after, err := settledTime(server.process.Process.Pid)
	if err != nil {
		return sample{}, err
	}
	during, err := allocated(ctx)
	if err != nil {
		return sample{}, err
	}
	slices.Sort(latencies)
	return sample{
		Requests:    requests,
		CPU:         after - before,
		Wall:        wall,
		P50:         percentile(latencies, 50),
		P99:         percentile(latencies, 99),
		allocations: during,
	}, nil
}

// readMemory notes how much memory every server holds.
func (d *driver) readMemory() error {
	for _, server := range d.servers {
		m, err := processMemory(server.process.Process.Pid)
		if err != nil {
			return err
		}
		d.report.Memory = append(d.report.Memory, serverMemory{Server: server.kind, Configuration: server.configuration, memory: m})
	}
	return nil
}

// failure says which server failed in which scenario and what the server wrote
// last.
func (d *driver) failure(server *server, s scenario, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%s in scenario %s: %w%s", server.kind, s.name, err, server.lastWords())
}

// write prints the report to stdout and to the file of --json.
func (d *driver) write(stdout io.Writer) error {
	text, err := json.MarshalIndent(d.report, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if d.options.jsonFile != "" {
		if err := os.WriteFile(d.options.jsonFile, text, 0o600); err != nil {
			return err
		}
	}
	if d.options.output == "json" {
		_, err = stdout.Write(text)
		return err
	}
	return writeTable(stdout, d.report)
}

// say writes progress.
func (d *driver) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.progress, format, args...)
}
