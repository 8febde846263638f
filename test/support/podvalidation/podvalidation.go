// Package podvalidation asks the API server's own code whether it would accept a pod. The code runs in a process of
// its own, podvalidate, which is built beside the control plane: the main module does not depend on k8s.io/kubernetes.
package podvalidation

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// program is the name of the executable, see test/controlplane/podvalidate.
const program = "podvalidate"

// Validator is a running podvalidate. It may be used concurrently; pods are validated one after the other.
type Validator struct {
	t testing.TB

	mutex   sync.Mutex
	input   io.Writer
	answers *bufio.Reader
	// broken is why no more answers come.
	broken error
}

// New starts the podvalidate of the control plane that [cluster.Assets] finds, and stops it when the test and its
// subtests have ended. The test fails if it is not built: one that is skipped would look as if it had passed.
func New(t testing.TB) *Validator {
	t.Helper()
	directory, err := cluster.Assets()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(directory, program)
	_, err = os.Stat(path)
	if err != nil {
		t.Fatalf("find %s: %v; hint: run 'make controlplane'", program, err)
	}
	var log bytes.Buffer
	// The test's context ends before its cleanup, in which the process ends by itself.
	command := exec.CommandContext(context.WithoutCancel(t.Context()), path) //nolint:gosec // whoever runs the tests chooses their programs
	command.Stderr = &log
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = command.Start()
	if err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	t.Cleanup(func() {
		// It ends with its input, which fails to close only if it has ended already.
		err := errors.Join(input.Close(), command.Wait())
		if err != nil || log.Len() > 0 {
			t.Errorf("%s: %v\n%s", program, err, log.Bytes())
		}
	})
	return &Validator{t: t, input: input, answers: bufio.NewReader(output)}
}

// Errors is what the API server would say is wrong with the pod, given as JSON, when it is created, one text for each
// error as "spec.containers[0].name: Required value", in the API server's order. It is empty for a pod that would be
// accepted. A pod without a name, a namespace or a kind gets what the API server gives it: the name that it generates,
// the namespace of the request, v1 Pod. What admission plug-ins say is not in it.
//
// If podvalidate fails, the test does too, and the error is returned besides.
func (v *Validator) Errors(pod []byte) []string {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if v.broken != nil {
		return []string{v.broken.Error()}
	}
	errs, err := v.ask(pod)
	if err != nil {
		v.broken = fmt.Errorf("%s: %w", program, err)
		v.t.Error(v.broken)
		return []string{v.broken.Error()}
	}
	return errs
}

func (v *Validator) ask(pod []byte) ([]string, error) {
	// In JSON a line end is white space only.
	line := bytes.ReplaceAll(pod, []byte("\n"), []byte(" "))
	_, err := v.input.Write(append(line, '\n'))
	if err != nil {
		return nil, err
	}
	text, err := v.answers.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	var answer struct {
		Valid  bool     `json:"valid"`
		Errors []string `json:"errors"`
	}
	err = json.Unmarshal(text, &answer)
	if err == nil && answer.Valid != (len(answer.Errors) == 0) {
		err = errors.New("neither valid nor with errors")
	}
	if err != nil {
		return nil, fmt.Errorf("read the answer %q: %w", text, err)
	}
	return answer.Errors, nil
}
