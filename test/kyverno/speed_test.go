package kyverno

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// server is "gatehouse serve".
type server struct {
	pid    int
	url    string
	client *http.Client
}

// serve starts a server, which ends with the test, on a directory of documents.
func serve(t *testing.T, config string) *server {
	t.Helper()
	certificates := filepath.Join(t.TempDir(), "certificates")
	cmd := exec.CommandContext(t.Context(), program, "serve", "--config", config, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
		"--drain-delay", "0s", "--self-signed", "127.0.0.1", "--self-signed-dir", certificates)
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &server{pid: cmd.Process.Pid}
	lines := bufio.NewScanner(log)
	for s.url == "" && lines.Scan() {
		var entry struct{ Msg, Reviews string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "serving" {
			s.url = "https://" + entry.Reviews
		}
	}
	if s.url == "" {
		t.Fatalf("the server ends: %v", cmd.Wait())
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(certificates, "ca.crt"))
	if err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatalf("no CA: %v", err)
	}
	s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	return s
}

// validate sends a review.
func (s *server) validate(t *testing.T, review []byte) {
	t.Helper()
	response, err := s.client.Post(s.url+"/validate", "application/json", bytes.NewReader(review))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if answer, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %v", response.Status, answer, err)
	}
}

// processorTime returns the time of processors that a process has taken.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	const user, tick = 13, 10 * time.Millisecond
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(raw), ") ") // the name of the program is the second field
	fields := strings.Fields("0 0 " + after)
	var ticks int
	for _, field := range fields[user : user+2] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick
}

// TestSpeed compares the processor time that a decision about a pod of 5 KB takes: that of Kyverno's engine alone, and that of Gatehouse's
// server with all that belongs to a review.
func TestSpeed(t *testing.T) {
	const rounds, reviews, share = 200, 4000, 10
	g := &generator{rand.New(rand.NewPCG(*seed, 1))}
	o := newOracle()
	originals, results, output := convert(t, g, 40)
	c := testCase{operation: "CREATE", object: g.largePod()}
	request := requestOf(t, &c)
	ctx := o.contextOf(t, request)
	start, decided := processorTime(t, os.Getpid()), 0
	for _, r := range results {
		if r.Status == "NotConverted" {
			continue
		}
		decided++
		for range rounds {
			o.engine.Validate(context.Background(), ctx.WithPolicy(originals[r.name()]))
		}
	}
	kyverno := (processorTime(t, os.Getpid()) - start) / rounds
	review, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &request,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, output)
	s.validate(t, review)
	start = processorTime(t, s.pid)
	for range reviews {
		s.validate(t, review)
	}
	gatehouse := (processorTime(t, s.pid) - start) / reviews
	t.Logf("processor time for a pod of %d bytes and %d policies: Kyverno %s, Gatehouse %s, ratio %.3f",
		len(request.Object.Raw), decided, kyverno, gatehouse, gatehouse.Seconds()/kyverno.Seconds())
	if gatehouse > kyverno/share {
		t.Errorf("the converted policies take more than 1/%d of the time", share)
	}
}
