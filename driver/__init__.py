"""The DRA kubelet plugin: gives the CPUs that ``solver`` chooses to pods, and keeps everyone else off them."""
