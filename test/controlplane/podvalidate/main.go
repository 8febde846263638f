//go:build ignore

// Podvalidate tells of pods whether the API server would accept them: it decodes, defaults and validates them with the
// API server's own code, that of the Kubernetes version whose module it is built with and with that version's default
// feature gates. What it cannot tell is what admission plug-ins say, and whether what a pod refers to exists. As for the
// API server, a field that it does not know is no error.
//
// It reads one pod, as JSON, from each line of its input and writes one line for each, in their order, as soon as it
// is known: {"valid":true}, or {"errors":[…]} with all that is wrong.
//
// ../build.sh builds it. To the main module this file does not exist, by the first line: k8s.io/kubernetes is no
// dependency of that.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // makes legacyscheme know pods
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/registry/core/pod"
)

func main() {
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true}) // as --allow-privileged does, which test/support/cluster sets too
	err := run(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "podvalidate:", err)
		os.Exit(1)
	}
}

// answer is one line of the output.
type answer struct {
	Valid  bool     `json:"valid,omitempty"`
	Errors []string `json:"errors,omitempty"`
}

func run(input io.Reader, output io.Writer) error {
	lines, answers := bufio.NewReaderSize(input, 1<<16), json.NewEncoder(output)
	answers.SetEscapeHTML(false)
	media, found := runtime.SerializerInfoForMediaType(legacyscheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !found {
		return errors.New("this Kubernetes has no decoder for JSON")
	}
	decoder := legacyscheme.Codecs.DecoderToVersion(media.Serializer, runtime.InternalGroupVersioner)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		wrong := validate(decoder, bytes.TrimSpace(line))
		if err := answers.Encode(answer{Valid: len(wrong) == 0, Errors: wrong}); err != nil {
			return err
		}
	}
}

// validate does what the API server does to a pod that is created: it decodes it, which sets defaults, fills in what
// the registry fills in, and validates it as the registry does.
func validate(decoder runtime.Decoder, text []byte) []string {
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	object, _, err := decoder.Decode(text, &kind, nil)
	if err != nil {
		return []string{err.Error()}
	}
	p, ok := object.(*core.Pod)
	if !ok {
		return []string{fmt.Sprintf("not a pod: %T", object)}
	}
	if p.Namespace == "" {
		p.Namespace = metav1.NamespaceDefault
	}
	rest.FillObjectMetaSystemFields(p)
	if p.GenerateName != "" && p.Name == "" {
		p.Name = pod.Strategy.GenerateName(p.GenerateName)
	}
	ctx := genericapirequest.WithNamespace(context.Background(), p.Namespace)
	ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: "create", APIVersion: "v1", Resource: "pods", Namespace: p.Namespace,
	})
	err = rest.BeforeCreate(pod.Strategy, ctx, p)
	if err == nil {
		return nil
	}
	var invalid *apierrors.StatusError
	if !errors.As(err, &invalid) || !apierrors.IsInvalid(err) || invalid.ErrStatus.Details == nil {
		return []string{err.Error()}
	}
	out := make([]string, 0, len(invalid.ErrStatus.Details.Causes))
	for _, cause := range invalid.ErrStatus.Details.Causes {
		out = append(out, cause.Field+": "+cause.Message)
	}
	if len(out) == 0 {
		return []string{err.Error()} // never no error at all
	}
	return out
}
