package offline

import (
	"bytes"
	"context"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/gitops"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// The values of --output that are rules for a tool which compares objects of the cluster with their manifests.
const (
	argoOutput = "argocd"
	fluxOutput = "flux"
)

// ignoreRules writes the rules by which a tool ignores what admission changes in the objects. The pods of workloads are not in manifests.
func (f *changeFlags) ignoreRules(ctx context.Context, s cli.Streams, e *evaluator) error {
	changed := changes{log: changeLog{anyObject: true}}
	var objects []gitops.Object
	var nameless []string
	workloads := 0
	for o := range objectsIn(e.sources) {
		if o.Odd {
			changed.log.addNoPod(o)
			continue
		}
		paths, ok := changed.stored(ctx, e, o)
		switch kind := o.GroupVersionKind(); {
		case !ok:
		case len(paths) > 0 && !o.IsNamed():
			nameless = append(nameless, o.Place())
		default:
			objects = append(objects, gitops.Object{Group: kind.Group, Version: kind.Version, Kind: kind.Kind, Namespace: e.namespaceOf(o), Name: o.Name, Paths: paths})
		}
		if o.Workload != "" {
			workloads++
		}
	}
	if err := changed.err(); err != nil {
		return err
	}
	if e.unread != nil {
		return e.unread
	}
	var out bytes.Buffer
	for _, place := range nameless {
		_, _ = fmt.Fprintf(&out, "# No rule for %s: an object with generateName has no name to select it by.\n", cli.OneLine(place)) // to memory, here and below
	}
	if err := writeRules(&out, f.output, objects); err != nil {
		return err
	}
	if workloads > 0 {
		_, _ = fmt.Fprintf(&changed.log.lines, "%s: the pods need no rule, because the templates stay as they are\n", diagnostic.Count(workloads, "workload"))
	}
	if _, err := s.Out.Write(out.Bytes()); err != nil {
		return err
	}
	_, err := f.notes(s).Write(changed.log.lines.Bytes())
	return err
}

// stored returns the fields of an object that differ from its manifest once it is stored, and whether that is known.
func (c *changes) stored(ctx context.Context, e *evaluator, o *manifest.Object) ([]gitops.Path, bool) {
	req, err := admit.Request(e.resources, request.Spec{Object: o.JSON(), Namespace: e.namespace, User: e.user})
	if err != nil {
		c.fail(o, err)
		return nil, false
	}
	before := req.Object.Raw
	if _, ok := c.apply(ctx, e, o, &req, o.JSON(), ""); !ok {
		return nil, false
	}
	if sidecar.IsNewPod(&req) && o.NoPod == "" {
		refused, unknown := len(c.refused), len(c.unknown)
		if c.inject(ctx, e.input, o); len(c.refused) > refused || len(c.unknown) > unknown {
			return nil, false
		}
		if injection := admit.Inject(ctx, e.snapshot.Sidecar, &req); injection.Err != nil {
			c.fail(o, injection.Err)
			return nil, false
		}
	}
	paths, err := gitops.Differences(before, req.Object.Raw)
	if err != nil {
		c.fail(o, err)
	}
	return paths, err == nil
}

// writeRules writes the rules for a tool, as the part of its custom resource that has them.
func writeRules(out *bytes.Buffer, tool string, objects []gitops.Object) error {
	if tool == argoOutput {
		return writeSpec(out, "# Argo CD: in the Application\n", "ignoreDifferences", gitops.ArgoCD(objects))
	}
	rules, left := gitops.Flux(objects)
	for i := range objects {
		o := &objects[i]
		for _, path := range left[o] {
			_, _ = fmt.Fprintf(out, "# No rule for %s/%s at %s: a JSON pointer counts elements, and this one moves those of the manifest.\n", cli.InertName(o.Kind), cli.InertName(o.Name), cli.OneLine(path.JQ()))
		}
	}
	if err := writeSpec(out, "# Flux, for a chart: in the HelmRelease\n", "driftDetection", map[string]any{"ignore": rules}); err != nil {
		return err
	}
	return writeSpec(out, "---\n# Flux, for other manifests: in the Kustomization, from Flux 2.9 on\n", "ignore", rules)
}

// writeSpec writes a member of spec as YAML below a comment.
func writeSpec(out *bytes.Buffer, comment, name string, value any) error {
	text, err := cli.EncodeYAML(map[string]any{"spec": map[string]any{name: value}})
	_, _ = out.WriteString(comment) // to memory, here and below
	_, _ = out.Write(text)
	return err
}
