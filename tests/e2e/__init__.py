"""kvtool under the real llama.cpp server, with small models that the tests make themselves."""
