package convert

import "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"

func (c *converter) exceptions()                  {}
func (c *converter) constraints()                 {}
func (c *converter) celPolicy(_ *manifest.Object) {}
