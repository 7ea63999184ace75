package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// stable matches the versions that kube-apiserver serves by default. The
// documents in the module come from a server with every alpha and beta on.
var stable = regexp.MustCompile(`^v[0-9]+$`)

type group struct {
	name     string
	versions []string
}

type apiResource struct {
	Name         string   `json:"name"`
	SingularName string   `json:"singularName"`
	Namespaced   bool     `json:"namespaced"`
	Group        string   `json:"group"`
	Version      string   `json:"version"`
	Kind         string   `json:"kind"`
	Verbs        []string `json:"verbs"`
	ShortNames   []string `json:"shortNames"`
	Categories   []string `json:"categories"`
}

type discovered struct {
	groups     []group
	resources  map[schema.GroupVersion][]apiResource
	storage    map[schema.GroupVersionResource]stored
	jsonGroups []string
}

// readDiscovery reads groups in kube-apiserver's order of priority, and the
// resources of their stable versions.
func readDiscovery(root string) (*discovered, error) {
	folder := filepath.Join(root, "api/discovery")
	var published struct {
		Groups []struct {
			Name     string
			Versions []struct{ Version string }
		}
	}
	if err := readJSON(filepath.Join(folder, "apis.json"), &published); err != nil {
		return nil, err
	}
	result := &discovered{
		groups:    []group{{"", []string{"v1"}}},
		resources: map[schema.GroupVersion][]apiResource{},
	}
	for _, found := range published.Groups {
		kept := group{name: found.Name}
		for _, version := range found.Versions {
			if stable.MatchString(version.Version) {
				kept.versions = append(kept.versions, version.Version)
			}
		}
		if len(kept.versions) > 0 {
			result.groups = append(result.groups, kept)
		}
	}
	for _, group := range result.groups {
		for _, version := range group.versions {
			gv := schema.GroupVersion{Group: group.name, Version: version}
			resources, err := readResources(folder, gv)
			if err != nil {
				return nil, err
			}
			result.resources[gv] = resources
		}
	}
	return result, nil
}

func readResources(folder string, gv schema.GroupVersion) ([]apiResource, error) {
	file := "api__v1.json"
	if gv.Group != "" {
		file = fmt.Sprintf("apis__%s__%s.json", gv.Group, gv.Version)
	}
	var list struct{ Resources []apiResource }
	if err := readJSON(filepath.Join(folder, file), &list); err != nil {
		if os.IsNotExist(err) {
			return nil, fmt.Errorf("no discovery document for %s", gv)
		}
		return nil, err
	}
	for i := range list.Resources {
		// Discovery leaves out the group and version when they are the list's.
		if found := &list.Resources[i]; found.Version == "" {
			found.Group, found.Version = gv.Group, gv.Version
		}
	}
	sort.Slice(list.Resources, func(i, j int) bool { return list.Resources[i].Name < list.Resources[j].Name })
	return list.Resources, nil
}

func (d *discovered) print(out io.Writer) {
	for _, group := range d.groups {
		fmt.Fprintf(out, "group %s %s\n", dash(group.name), strings.Join(group.versions, ","))
	}
	for _, group := range d.groups {
		for _, version := range group.versions {
			for _, found := range d.resources[schema.GroupVersion{Group: group.name, Version: version}] {
				found.print(out, group.name, version, d.columns(group.name, version, &found))
			}
		}
	}
}

// print writes a resource as `resource group version plural singular Kind
// scope shortNames categories verbs type prefix storedVersion encoding`, a
// subresource on the lines after its resource as `sub name group version Kind
// verbs type`.
func (r *apiResource) print(out io.Writer, group, version, storage string) {
	if _, sub, ok := strings.Cut(r.Name, "/"); ok {
		fmt.Fprintf(out, "sub %s %s %s %s %s %s\n", sub, dash(r.Group), r.Version, r.Kind,
			list(r.Verbs), dash(typeOfKind(r.gvk())))
		return
	}
	scope := "Cluster"
	if r.Namespaced {
		scope = "Namespaced"
	}
	fmt.Fprintf(out, "resource %s %s %s %s %s %s %s %s %s %s %s\n", dash(group), version, r.Name,
		r.SingularName, r.Kind, scope, list(r.ShortNames), list(r.Categories), list(r.Verbs), dash(typeOfKind(r.gvk())),
		storage)
}

func (r *apiResource) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func list(items []string) string {
	return dash(strings.Join(items, ","))
}
