"""The list of packages: fnx with all below it, and two folders beside it that become part of it."""

from setuptools import find_packages, setup

BESIDE = {"fnx.interpreters": "interpreters", "fnx.lowering": "lowering"}

packages = find_packages(include=["fnx", "fnx.*"])
for name, folder in BESIDE.items():
    packages += [name, *(f"{name}.{inner}" for inner in find_packages(folder))]

setup(packages=packages, package_dir={"fnx": "fnx", **BESIDE})
